"""The scale of scores of networks that are trained as they are used, as a whole."""

ACOUSTIC_FACTOR = 10.0  # of their log-likelihoods, as Kaldi's --post-decode-acwt: LM weights around 10 are then near a true scale of 1
