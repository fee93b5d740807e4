"""The limit on minibatches that a rank skips because their values are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasr.base import log
from pyasr.train.sgd.criterion import Diverged

if TYPE_CHECKING:
    from pyasr.train.job.resumption import Position
    from pyasr.train.sgd.any_learner import AnyLearner


class SkipLimit:
    """Counts the skipped minibatches of this rank in `Position.skipped`. Raises Diverged above `most`."""

    def __init__(self, learner: AnyLearner, most: int, rank: int):
        self.learner, self.most, self.rank = learner, most, rank

    def report(self, position: Position) -> None:
        """Warn of minibatches whose gradient was not finite, since the last call. Waits for the device."""
        number, layers, last = self.learner.nonfinite_guard.take()
        if number:
            where = (
                f"the gradient of {', '.join(layers)} was not finite, last at step {last} of rank {self.rank}"
            )
            log.warning(f"minibatches skipped: {number}; {where}")
            self._count(position, number, "minibatches", where)

    def count_parts(self, position: Position, number: int) -> None:
        """Count `number` parts of the last minibatch that the criterion has skipped."""
        if number:
            parts, reason = self.learner.criterion.skipped_parts
            self._count(
                position,
                number,
                parts,
                f"{reason}, last at step {self.learner.num_steps} of rank {self.rank}",
            )

    def _count(self, position: Position, number: int, what: str, where: str) -> None:
        position.skipped += number
        if position.skipped > self.most:
            found = f"{position.skipped} {what} were skipped, more than --max-skipped {self.most}"
            raise Diverged(f"{found}: {where}; give a lower {self.learner.criterion.rate_flag}, and --force")
