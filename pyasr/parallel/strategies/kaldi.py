r"""Parameter averaging as in Kaldi's nnet2 and nnet3 scripts: at long periods, by a growing number of jobs,
without the first iteration.

Reference: D. Povey, X. Zhang, S. Khudanpur, arXiv:1410.7455; Kaldi's steps/nnet3/train_dnn.py (its
behaviour). In an iteration, each of J jobs trains on an archive of `period_frames`; then the parameters are
averaged with equal weights. J grows linearly over the K iterations, from `initial_ranks` to the number of
ranks. The number of archives is T / period = (J_i + J_f) K / 2, so as a function of frames

    J = round(J_i + (J_f - J_i) k / K) = round(sqrt(J_i^2 + (J_f^2 - J_i^2) t / T))

after k of K iterations and t of T frames. Ranks that do not learn in an iteration wait. The learning rate is
the effective rate times J (with linear scaling, J times that of one rank). In the first iteration, and after
a network has grown, all ranks take the parameters of the rank with the best objective (see `choose_best`),
and train with half minibatches until then.

Kaldi assigns each archive of an epoch to one job. Here, a rank that learns draws from all data, in its own
order, and the ranks together process as many frames in an epoch as the data have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.parallel.mixing.base import Mixing
from pyasr.parallel.mixing.mixing_schedule import MixingSchedule
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import MomentumMixingOptions, PeriodOptions
from pyasr.parallel.strategies.allreduce import AllreduceAveraging

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KaldiOptions(MomentumMixingOptions, PeriodOptions):
    """Number of ranks that learn. The first iteration is not averaged."""

    first_mixing = "best"

    initial_ranks: int = option(
        1, "number of ranks that learn at first; it grows to all ranks", minimum=1, rare=True
    )


class GrowingMixingSchedule(MixingSchedule):
    """Iterations of an epoch of `frames`, by some of the ranks: in iteration j = 1, 2, ... ranks 0, ...,
    active[j - 1] - 1 learn.

    active_at  function from the number of processed frames of the epoch to the number of ranks that learn
    active     number of ranks that learn in each iteration
    """

    def __init__(self, frames: int, num_ranks: int, period: int, minibatch: int, active_at):
        super().__init__([frames] * num_ranks, period, minibatch)
        self.active, targets, seen = [], [np.zeros(num_ranks, np.int64)], 0
        while seen < frames:
            self.active.append(active_at(seen))
            share = min(self.period, -(-(frames - seen) // self.active[-1]))
            targets.append(targets[-1] + share * (np.arange(num_ranks) < self.active[-1]))
            seen = int(targets[-1].sum())
        self.targets = np.array(targets)  # frames that each rank has processed after an iteration
        self.num_mixings = len(self.active)

    def is_due(self, rank: int, own_frames: int, mixing: int) -> bool:
        """Whether the rank has processed its archives."""
        return own_frames >= self.targets[mixing, rank]

    def shares(self, mixing: int) -> np.ndarray:
        """Frames of each rank in an iteration."""
        return self.targets[mixing] - self.targets[mixing - 1]


@register("kaldi", options=KaldiOptions)
class KaldiSchedule(AllreduceAveraging):
    """Averages over the ranks that learn.

    goal   frames of an epoch
    begun  frames of the epoch that a training with another number of ranks processed before it was resumed
    """

    options: KaldiOptions
    mixing_schedule: GrowingMixingSchedule
    draws_from_all = True
    _SAVED = (*AllreduceAveraging._SAVED, "goal", "begun")

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.first, self.goal, self.begun = min(options.initial_ranks, comm.size), 0, 0

    def make_mixing_schedule(self, totals: list[int], minibatch: int) -> GrowingMixingSchedule:
        """Mixing schedule of the epoch, or of the rest of a resumed epoch."""
        if not self.begun:
            self.goal = max(totals)
        return self._growing_schedule(
            self.goal - self.begun, minibatch, lambda seen: self.epoch + (self.begun + seen) / self.goal
        )

    def _growing_schedule(
        self, frames: int, minibatch: int, epochs_at: Callable[[int], float]
    ) -> GrowingMixingSchedule:
        """Mixing schedule of `frames` of an epoch; `epochs_at` converts frames of it to finished epochs of
        the training."""

        def active_at(seen: int) -> int:
            return round(
                math.sqrt(
                    self.first**2
                    + (self.comm.size**2 - self.first**2) * epochs_at(seen) / self.training.num_epochs
                )
            )

        return GrowingMixingSchedule(frames, self.comm.size, self.options.period_frames, minibatch, active_at)

    def next_synchronisation(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """At the end of the iteration."""
        epoch, within = divmod(frames, epoch_frames)
        ends = self._growing_schedule(
            epoch_frames, minibatch, lambda seen: epoch + seen / epoch_frames
        ).targets.sum(1)
        return epoch * epoch_frames + min(int(ends[np.searchsorted(ends, within)]), epoch_frames)

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Mix as all periodic schemes do."""
        mixing = super().step(master, frames)
        if mixing and mixing.last:
            self.begun = 0
        return mixing

    def state_dict(self) -> dict:
        """The base class's state and the frames of the epoch that all ranks have processed."""
        return {
            **super().state_dict(),
            "done": self.begun + int(self.mixing_schedule.targets[self.mixings].sum()),
        }

    def resume_resized(self, state: dict) -> None:
        """Restore the position in the epoch; these ranks process the rest of it."""
        super().resume_resized(state)
        self.goal, self.begun = state["goal"], state["done"]

    @property
    def num_active(self) -> int:
        """J, the number of ranks that learn in this iteration."""
        return self.mixing_schedule.active[self.mixings]

    @property
    def is_idle(self) -> bool:
        """Whether this rank idles in this iteration: ranks from J on do."""
        return self.comm.rank >= self.num_active
