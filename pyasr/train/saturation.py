r"""Saturated and linear tanh and sigmoid units, mended while the network is trained (the behaviour of Kaldi's nnet-am-fix).

A unit y = sigma(w . h + b) that is at its bounds on most frames learns next to nothing; one that stays where sigma is a straight line is of
no use as a unit. With d its average derivative over a sample, relative to the greatest possible one (tanh: 1 - y^2; sigmoid:
4 y (1 - y)),

    (w, b) <- (w, b) / min(2, 0.1 / d)     where d < 0.1
    (w, b) <- (w, b) min(2, d / 0.75)      where d > 0.75

Kaldi takes the averages over the frames of the last iteration, and has a rule for ReLU (biases of dead units + 1), which is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from pyasr.nn.fast_tanh import Tanh
from pyasr.nn.feed_forward import FeedForward
from pyasr.train.learner import Learner
from pyasr.train.sample import Sample

_LEAST_DERIVATIVE, _GREATEST_DERIVATIVE, _GREATEST_FACTOR = 0.1, 0.75, 2.0
_DERIVATIVES = {Tanh: lambda y: 1 - y * y, nn.Sigmoid: lambda y: 4 * y * (1 - y)}


@dataclass
class SaturationFix:
    """Draws saturated units back and linear ones out; every rank must call it, with the same parameters."""

    sample: Sample

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place."""
        derivatives = average_derivatives(learner.network.with_parameters(learner.flat.values()), self.sample)
        values = learner.flat.values()  # weight and bias of each layer in turn
        factors = [factors_of(derivative) for derivative in derivatives]
        for factor, weight, bias in zip(factors, values[0::2], values[1::2]):
            weight.mul_(factor.to(weight).unsqueeze(1))
            bias.mul_(factor.to(bias))
        learner.flat.refresh()
        every = torch.cat(factors)
        back, out = int((every < 1).sum()), int((every > 1).sum())
        self.sample.comm.say(f"of {len(every)} hidden units {back} were saturated and drawn back, {out} were linear and drawn out")


def factors_of(derivatives: torch.Tensor) -> torch.Tensor:
    """What the parameters of units are multiplied by, from their relative derivatives."""
    back = (_LEAST_DERIVATIVE / derivatives.clamp(min=1e-20)).clamp(1.0, _GREATEST_FACTOR)
    out = (derivatives / _GREATEST_DERIVATIVE).clamp(1.0, _GREATEST_FACTOR)
    return out / back


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
