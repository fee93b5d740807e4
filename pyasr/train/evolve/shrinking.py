"""Factors for the parameters of a network while it is trained, "shrinking" in two of Kaldi's recipes.

nnet2's for tanh networks: one factor for the parameters of each layer, found as a combination of models
(`pyasr.train.evolve.combine`) with the present one alone, on a small sample of training frames. Layers whose parameters have
become too large for the units above to move, or are still too small, are brought to the scale that fits best at once, where SGD
would take long.

nnet3's for LSTM: one factor given (0.99) for all parameters, wherever sigmoid and tanh units are saturated beyond a threshold on average.
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
    """Scales the layers of a network; every rank must call it, with the same parameters."""

    sample: Sample

    def __post_init__(self):
        self.sample = self.sample.part(_FRAMES)

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place; its objective on the sample does not fall."""
        network = learner.network.with_parameters(learner.flat.values())
        combination = Combination(network, [[value.cpu().clone() for value in learner.flat.values()]], self.sample)
        factors, _ = optimal_weights(combination, _OPTIONS)
        combination.set(factors)
        give(learner, network)
        self.sample.comm.say(f"factors of the layers: {', '.join(f'{factor:.3f}' for factor in factors[0].tolist())}")


@dataclass
class ShrinkingOfSaturated:
    """Multiplies all parameters by `factor` where the saturation of the network is above `threshold`: the mean of 1 - d over its units, d
    as in `pyasr.train.evolve.saturation`. Every rank must call it, with the same parameters."""

    sample: Sample
    factor: float
    threshold: float

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place, or leave them."""
        derivatives = average_derivatives(learner.network.with_parameters(learner.flat.values()), self.sample)
        saturation = 1 - float(torch.cat(derivatives).mean())
        if saturation > self.threshold:
            for value in learner.flat.values():
                value.mul_(self.factor)
            learner.flat.refresh()
        done = f"all parameters times {self.factor:g}" if saturation > self.threshold else "parameters stay"
        self.sample.comm.say(f"saturation of units {saturation:.3f}: {done}")
