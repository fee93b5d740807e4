"""The strategy's view of a training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pyasr.parallel.strategies import TrainingView

if TYPE_CHECKING:
    from pyasr.train.job.trainer import Trainer


class TrainerView(TrainingView):
    """A `Trainer` as its strategy sees it."""

    def __init__(self, trainer: Trainer):
        self._trainer, self.num_epochs = trainer, trainer.schedule.options.num_epochs

    @property
    def rate(self) -> float:
        return self._trainer.rate()

    @property
    def velocity(self) -> torch.Tensor | None:
        return self._trainer.learner.velocity if self._trainer.strategy.options.mix_momentum else None

    def objective(self) -> float:
        """Objective over the minibatches of the comparison of ranks; minus infinity if all of them were skipped."""
        totals = self._trainer.totals(self._trainer.compared_sums.cpu().numpy())
        return totals.objective if totals.sums[2] else -math.inf

    def before_consensus(self) -> None:
        self._trainer.evaluate_apart()

    def after_mixing(self, master: torch.Tensor) -> None:
        if self._trainer.one_learner:
            self._trainer.one_learner.after_mixing(master)

    def wants_meeting(self) -> bool:
        return self._trainer.is_late()

    def frames_to_meeting(self) -> int:
        """Interval of checkpoints in frames, or the distance to the next change of the network if that is less; 0: neither."""
        trainer, saves = self._trainer, self._trainer.options.checkpoint_frames
        growth = trainer.growth.ahead(trainer.position.frames_seen) if trainer.growth else []
        return min([*([saves] if saves else []), *growth], default=0)
