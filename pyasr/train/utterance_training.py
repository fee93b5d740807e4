"""The training loop for minibatches of whole utterances, whose objectives are no log probabilities of frames."""

from __future__ import annotations

import math

import torch

from pyasr.train.loop import COMPARED_CHANGE, Diverged, Training
from pyasr.train.progress import Totals


class ObjectiveTotals(Totals):
    """Sums of a criterion that knows no accuracy: its negative, something else, what it is counted in."""

    @property
    def accuracy(self) -> float:
        """The objective, for schedules and reports, which want one."""
        return self.objective


class UtteranceTraining(Training):
    """A training by such a criterion; a subclass says by its `totals` what a learner's sums mean."""

    totals = ObjectiveTotals

    def _learn(self, x: torch.Tensor, supervision) -> torch.Tensor:
        """Train on a minibatch, which cannot be halved while ranks are going to be compared."""
        compares = self.strategy.compares
        sums = self.learner.step(x, supervision, self._summed_rate(), COMPARED_CHANGE if compares else 1.0)
        if compares:
            self.compared_sums += sums
        return sums

    def check_divergence(self, totals: Totals) -> None:
        """No criterion has a value that a network without knowledge would have."""
        if not math.isfinite(totals.objective):
            raise Diverged(f"training has diverged (objective {totals.objective}): give a lower {self.rate_flag}, and --force")
