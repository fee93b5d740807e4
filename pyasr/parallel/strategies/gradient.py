r"""Synchronous SGD (gradient), and such only in the first epochs (post-local).

Reference: T. Lin, S. Stich, K. Patel, M. Jaggi, "Don't use large mini-batches, use local SGD", arXiv:1808.07217 (post-local).

All ranks have the same parameters. With G_r the gradient of rank r's minibatch, summed over its frames, all P ranks take the step of

    G = sum_r G_r / P

so that each frame counts the same, whatever minibatch it is in: with --lr-scaling linear the step is that of one rank with all
their frames.

What a layer has of G is added up over ranks while the backward pass goes on with the layers below it. Natural gradient acts on each rank's
own minibatch, within G_r; momentum and limits on the change act on G, and so does a number that is not finite: all ranks leave that
minibatch out. A rank without data takes the others' steps, with G_r = 0.

Where all minibatches have as many frames, every rank knows those of all from the beginning of the epoch. Whole utterances, and rows of
chunks with state carried over, come in minibatches of any size, and ranks may have different numbers of them: before each backward pass
they tell each other their frames. A learner that has no gradient to give (of an RBM) averages its parameters after every minibatch instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.options import option
from pyasr.parallel.strategies.allreduce import AllreduceAveraging
from pyasr.parallel.strategies.base import Mixing
from pyasr.parallel.strategies.gradient_sum import GradientSum
from pyasr.parallel.strategies.options import FirstMixingOptions, PeriodicOptions
from pyasr.parallel.strategies.register import register
from pyasr.parallel.strategies.timetable import MinibatchTimetable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class PostLocalOptions(PeriodicOptions):
    """When ranks begin to learn by themselves."""

    post_local_epochs: int = option(1, "epochs in which all ranks add up the gradients of every minibatch", minimum=0)


@register("gradient", options=FirstMixingOptions)
class GradientAveraging(AllreduceAveraging):
    """Averages gradients in every minibatch: synchronous SGD."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.gradient_sum: GradientSum | None = None
        self.of_any_size = False  # minibatches

    def sum_gradients(self, of_any_size: bool = False) -> GradientSum | None:
        """With one rank there is nothing to add."""
        self.of_any_size = of_any_size
        self.gradient_sum = GradientSum(self.wire, self.gradient_shares, self.mixing) if self.comm.size > 1 else None
        return self.gradient_sum

    def adds(self, epoch: int) -> bool:
        """Whether gradients are added in an epoch, the first of which is 0."""
        return True

    def period(self, epoch: int) -> int:
        """One minibatch where gradients are added."""
        return 1 if self.adds(epoch) else self.options.period_frames

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """As of all that mix periodically; minibatches of any size are counted instead of frames."""
        if self.of_any_size and self.adds(self.epoch):
            self.timetable = MinibatchTimetable(self.comm.allgather(frames - self.own_frames))
        else:
            super().begin_epoch(frames, minibatch)

    def gradient_shares(self, frames: int) -> np.ndarray | None:
        """Frames of each rank's next minibatch, of which this one's has `frames`, float64 (P,); None where parameters are mixed instead of
        gradients."""
        if self.compares or not self.adds(self.epoch):
            return None
        self._tell(frames)
        return self.timetable.shares(self.mixings + 1).astype(float)

    def _tell(self, frames: int) -> None:
        """Let all ranks know of this one's minibatch before the next mixing, once."""
        timetable, mixing = self.timetable, self.mixings + 1
        if isinstance(timetable, MinibatchTimetable) and not timetable.knows(mixing):
            timetable.tell(mixing, self.waiting(self.comm.allgather, frames))

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Whoever takes another's parameters has no use for its own momentum."""
        self.resets_momentum = self.compares
        self._tell(frames)
        return super().step(master, frames)

    def _mix_with_others(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Nothing is left to do where gradients have been added; at the end of an epoch, equal bits are made sure of: processors of
        different kinds may round differently."""
        if not (self.gradient_sum and self.gradient_sum.has_been):
            super()._mix_with_others(master, shares, last)
            return
        self.gradient_sum.has_been, self.drift = False, self.drift or 0.0
        if last:
            self.mixing(self.consensus, master)
            self.wire.agree(master)


@register("post-local", options=PostLocalOptions)
class PostLocal(GradientAveraging):
    """Averages gradients in every minibatch of the first epochs, then parameters periodically."""

    def adds(self, epoch: int) -> bool:
        """At first."""
        return epoch < self.options.post_local_epochs
