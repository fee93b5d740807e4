r"""Saturated tanh and sigmoid units, drawn back while the network is trained (the behaviour of Kaldi's nnet-am-fix).

A unit y = sigma(w . h + b) that is at its bounds on most frames learns next to nothing. With d its average derivative over a sample,
relative to the greatest possible one (tanh: 1 - y^2; sigmoid: 4 y (1 - y)), and D = 0.1,

    (w, b) <- (w, b) / min(2, D / d)    where d < D
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from pyasr.nn.fast_tanh import Tanh
from pyasr.nn.feed_forward import FeedForward
from pyasr.train.learner import Learner
from pyasr.train.sample import Sample

_LEAST_DERIVATIVE, _GREATEST_FACTOR = 0.1, 2.0
_DERIVATIVES = {Tanh: lambda y: 1 - y * y, nn.Sigmoid: lambda y: 4 * y * (1 - y)}


@dataclass
class SaturationFix:
    """Shrinks the weights of saturated units; every rank must call it, with the same parameters."""

    sample: Sample

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place."""
        derivatives = average_derivatives(learner.network.with_parameters(learner.flat.values()), self.sample)
        values = learner.flat.values()  # weight and bias of each layer in turn
        num_fixed = 0
        for derivative, weight, bias in zip(derivatives, values[0::2], values[1::2]):
            factor = (_LEAST_DERIVATIVE / derivative.clamp(min=1e-20)).clamp(1.0, _GREATEST_FACTOR).to(weight)
            weight.div_(factor.unsqueeze(1))
            bias.div_(factor)
            num_fixed += int((factor > 1).sum())
        learner.flat.refresh()
        self.sample.comm.say(f"{num_fixed} of {sum(map(len, derivatives))} hidden units are saturated and were drawn back")


@torch.inference_mode()
def average_derivatives(network: FeedForward, sample: Sample) -> list[torch.Tensor]:
    """Relative derivatives of the units of each hidden layer, averaged over the sample's frames on all ranks, float64."""
    sums = torch.zeros(network.options.hidden_layers, network.options.hidden_dim, dtype=torch.float64)
    network.to(sample.device)
    for x, _ in sample.batches():
        place, h = 0, network.input(x)
        for layer in network.layers:
            h = layer(h)
            if type(layer) in _DERIVATIVES:
                sums[place] += _DERIVATIVES[type(layer)](h).sum(0, dtype=torch.float64).cpu()
                place += 1
    sample.comm.allreduce(sums)
    return list(sums / max(sample.num_frames, 1))
