"""Scale of the scores of networks with sequence-level training, used at the scale of their training."""

# on log-likelihoods, as Kaldi's --post-decode-acwt: LM weights around 10 then correspond to a scale near 1
ACOUSTIC_FACTOR = 10.0
