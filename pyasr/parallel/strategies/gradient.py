r"""Synchronous SGD (gradient), and synchronous SGD in the first epochs only (post-local).

Reference: T. Lin, S. Stich, K. Patel, M. Jaggi, "Don't use large mini-batches, use local SGD",
arXiv:1808.07217 (post-local).

All ranks have the same parameters. With G_r the gradient of rank r's minibatch, summed over its frames, all P
ranks apply

    G = sum_r G_r / P

so that each frame has the same weight, whatever the size of its minibatch. With --lr-scaling linear, the step
is that of one rank with all these frames.

The gradient of a layer is summed over ranks while the backward pass continues with the layers below. Natural
gradient acts on each rank's own minibatch, within G_r. Momentum and limits on the change act on G. If G is
not finite, all ranks skip the minibatch. A rank without data applies the steps of the others, with G_r = 0.

If all minibatches have the same number of frames, every rank knows all sizes at the beginning of the epoch.
Whole utterances, and rows of chunks with carried state, give minibatches of different sizes, and their number
may differ between ranks: ranks exchange the sizes before each backward pass. A learner without a gradient (of
an RBM) averages its parameters after every minibatch instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.parallel.mixing.base import Mixing
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.parallel.mixing.mixing_schedule import MinibatchSchedule
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import FirstMixingOptions, PeriodicOptions
from pyasr.parallel.strategies.allreduce import AllreduceAveraging

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class PostLocalOptions(PeriodicOptions):
    """Options of post-local SGD."""

    post_local_epochs: int = option(
        1,
        "number of first epochs in which all ranks sum the gradients of every minibatch",
        minimum=0,
        rare=True,
    )


@register("gradient", options=FirstMixingOptions)
class GradientAveraging(AllreduceAveraging):
    """Averages the gradients of every minibatch: synchronous SGD."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.gradient_sum: GradientSum | None = None
        self.of_any_size = False  # whether minibatches have different sizes

    def sum_gradients(self, of_any_size: bool = False) -> GradientSum | None:
        """The sum over ranks; None with a single rank."""
        self.of_any_size = of_any_size
        self.gradient_sum = (
            GradientSum(self.codec, self.gradient_shares, self.mixing) if self.comm.size > 1 else None
        )
        return self.gradient_sum

    def adds(self, epoch: int) -> bool:
        """Whether gradients are summed in epoch 0, 1, ..."""
        return True

    def period(self, epoch: int) -> int:
        """One minibatch if gradients are summed, else `period_frames`."""
        return 1 if self.adds(epoch) else super().period(epoch)

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Begin the epoch. Minibatches of different sizes get a schedule in minibatches, not frames."""
        if self.of_any_size and self.adds(self.epoch):
            self.mixing_schedule = MinibatchSchedule(self.comm.allgather(frames - self.own_frames))
        else:
            super().begin_epoch(frames, minibatch)

    def gradient_shares(self, frames: int) -> np.ndarray | None:
        """Frames of each rank's next minibatch (`frames`: those of this rank), float64 (P,); None if
        parameters are mixed instead of gradients."""
        if self.compares or not self.adds(self.epoch):
            return None
        self._announce(frames)
        return self.mixing_schedule.shares(self.mixings + 1).astype(float)

    def _announce(self, frames: int) -> None:
        """Announce the size of this rank's minibatch before the next mixing, once."""
        schedule, mixing = self.mixing_schedule, self.mixings + 1
        if isinstance(schedule, MinibatchSchedule) and not schedule.has_shares(mixing):
            schedule.set_shares(mixing, self.waiting(self.comm.allgather, frames))

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Mix. A rank that takes another rank's parameters resets its momentum."""
        self.resets_momentum = self.compares
        self._announce(frames)
        return super().step(master, frames)

    def _mix_with_others(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Mix parameters unless gradients have been summed. At the end of an epoch average them even so,
        because different processors may round differently."""
        if not (self.gradient_sum and self.gradient_sum.has_summed):
            super()._mix_with_others(master, shares, last)
            return
        self.gradient_sum.has_summed, self.drift = False, self.drift or 0.0
        if last:
            self.mixing(self.consensus, master)
            self.codec.set_base(master)


@register("post-local", options=PostLocalOptions)
class PostLocal(GradientAveraging):
    """Averages the gradients of every minibatch in the first epochs, then parameters periodically."""

    options: PostLocalOptions

    def adds(self, epoch: int) -> bool:
        """Whether this is one of the `--post-local-epochs`."""
        return epoch < self.options.post_local_epochs
