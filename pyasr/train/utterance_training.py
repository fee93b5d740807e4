"""The training loop for criteria of sequences, which are no log probabilities of frames, and for minibatches of whole utterances."""

from __future__ import annotations

import math

import torch

from pyasr.train.loop import Diverged, Training
from pyasr.train.memory import check_utterances_fit
from pyasr.train.progress import Totals


class ObjectiveTotals(Totals):
    """Sums of a criterion that knows no accuracy: its negative, something else, what it is counted in."""

    @property
    def accuracy(self) -> float:
        """The objective, for schedules and reports, which want one."""
        return self.objective


class ObjectiveTraining(Training):
    """A training by such a criterion; a subclass says by its `totals` what a learner's sums mean."""

    totals = ObjectiveTotals

    def check_divergence(self, totals: Totals) -> None:
        """No criterion has a value that a network without knowledge would have."""
        if not math.isfinite(totals.objective):
            raise Diverged(f"training has diverged (objective {totals.objective}): give a lower {self.rate_flag}, and --force")


class UtteranceTraining(ObjectiveTraining):
    """One whose minibatches are whole utterances."""

    def run(self) -> None:
        """As of all trainings. Raises UserError for an utterance that is too long for memory, or a minibatch that is too large."""
        check_utterances_fit(self)
        super().run()

    def largest_minibatch(self) -> tuple | None:
        """As of the utterances' own `largest`."""
        return self.training.largest() if len(self.training.keys) else None

    def what_to_lower(self) -> str:
        """As of all trainings; features are read as they are needed."""
        lengths = self.training.lengths
        longest = f" (the longest is {self.training.keys[lengths.argmax()]}, {lengths.max()} frames)" if len(lengths) else ""
        return f"lower --minibatch (now {self.learner.options.minibatch}), cut long utterances{longest}, or run fewer ranks on a host"

    def halves(self, x: torch.Tensor, supervision) -> list[tuple]:
        """The minibatch as it is: it may have no two utterances."""
        return [(x, supervision)]
