r"""Priors of the tied states (pdfs): factors before the softmax, and the divisors of the posteriors in
decoding.

a_s = c (n_s + 0.01 n)^q           factors on the logits (Kaldi's nnet2 and nnet3: q = -0.25); n_s frames of
                                   s, n their mean over pdfs, c such that the mean of a_s is 1: rare states
                                   learn faster
P(s) = sum_t p(s | x_t) / T        mean posteriors over a sample of training frames: Kaldi's "adjusted"
                                   priors, which fit the network's own posteriors better than the relative
                                   frequencies in the alignments
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.nn.networks.acoustic import log_priors
from pyasr.nn.networks.construction import Network
from pyasr.train.data.sample import Sample
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.training_options import PriorOptions

_SMOOTHING = 0.01
_FLOOR = 1e-10


def presoftmax_scales(counts: np.ndarray, power: float) -> torch.Tensor | None:
    """The factors a_s, float32 (num_pdfs,), from the frame counts of the pdfs; None for power 0."""
    if power == 0.0:
        return None
    scales = (counts + _SMOOTHING * counts.mean()) ** power
    return torch.from_numpy(scales / scales.mean()).float()


@torch.inference_mode()
def mean_posteriors(network: Network, sample: Sample) -> torch.Tensor:
    """P(s) of the formula, over all frames of the sample with targets, of all ranks, float64 (num_pdfs,)."""
    sums = torch.zeros(network.num_pdfs, dtype=torch.float64)
    network.to(sample.device)
    for x, pdfs in sample.batches():
        logits = network(x).flatten(0, -2)[pdfs.flatten() != NO_TARGET]
        sums += logits.softmax(1).sum(0, dtype=torch.float64).cpu()
    sample.comm.allreduce(sums)
    return sums / sums.sum()


def decoding_priors(
    options: PriorOptions, network: Network, counts: np.ndarray, sample: Sample | None
) -> torch.Tensor:
    """Log priors for the model file, float32 (num_pdfs,). Every rank must call this.

    sample  for --priors posteriors only
    """
    if options.priors == "alignments":
        return log_priors(counts)
    assert sample is not None
    return mean_posteriors(network, sample).clamp(min=_FLOOR).log().float()
