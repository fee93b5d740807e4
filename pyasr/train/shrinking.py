"""One factor for the parameters of each layer, found while a network is trained ("shrinking" in Kaldi's nnet2 recipe for tanh networks).

It is a combination of models (`pyasr.train.combine`) with the present one alone, on a small sample of training frames: layers whose
parameters have become too large for the units above to move, or are still too small, are brought to the scale that fits best at once,
where SGD would take long.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.train.combine import Combination, CombineOptions, give, optimal_weights
from pyasr.train.learner import Learner
from pyasr.train.sample import Sample

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
