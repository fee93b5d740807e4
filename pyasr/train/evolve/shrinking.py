"""Factors on the parameters of a network during training, called "shrinking" in two of Kaldi's recipes.

nnet2, tanh networks: a factor on the parameters of each layer, estimated as a combination of models
(`pyasr.train.evolve.combine`) of the present model alone, on a small sample of training frames. Layers whose
parameters are so large that the units above are saturated, or still too small, get the best scale at once,
for which SGD would take long.

nnet3, LSTM: a fixed factor (0.99) on all parameters whenever the mean saturation of sigmoid and tanh units
exceeds a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pyasr.train.data.sample import Sample
from pyasr.train.evolve.combine import Combination, give, optimal_weights
from pyasr.train.evolve.saturation import average_derivatives
from pyasr.train.sgd.learner import Learner
from pyasr.train.training_options import CombineOptions

_FRAMES = 2000  # over all ranks
_OPTIONS = CombineOptions(combine_iterations=10)


@dataclass
class Shrinking:
    """Scales the layers of a network. Every rank must call it, with the same parameters."""

    sample: Sample

    def __post_init__(self):
        self.sample = self.sample.part(_FRAMES)

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place. Its objective on the sample does not fall."""
        network = learner.network.with_parameters(learner.flat.values())
        combination = Combination(
            network, [[value.cpu().clone() for value in learner.flat.values()]], self.sample
        )
        factors, _ = optimal_weights(combination, _OPTIONS)
        combination.set(factors)
        give(learner, network)
        self.sample.comm.log(
            f"factors of the layers: {', '.join(f'{factor:.3f}' for factor in factors[0].tolist())}"
        )


@dataclass
class ShrinkingOfSaturated:
    """Multiplies all parameters by `factor` if the saturation of the network is above `threshold`. The
    saturation is the mean of 1 - d over its units, with d as in `pyasr.train.evolve.saturation`. Every rank
    must call it, with the same parameters."""

    sample: Sample
    factor: float
    threshold: float

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Scale `learner`'s parameters in place if its units are saturated."""
        derivatives = average_derivatives(learner.network.with_parameters(learner.flat.values()), self.sample)
        saturation = 1 - float(torch.cat(derivatives).mean())
        if saturation > self.threshold:
            for value in learner.flat.values():
                value.mul_(self.factor)
            learner.flat.refresh()
        done = (
            f"all parameters times {self.factor:g}" if saturation > self.threshold else "parameters unchanged"
        )
        self.sample.comm.log(f"saturation of units {saturation:.3f}: {done}")
