"""Strategies in which all ranks mix together, periodically."""

from __future__ import annotations

import numpy as np
import torch

from pyasr.parallel.strategies.base import Mixing, Strategy, finish_on_device


class PeriodicStrategy(Strategy):
    """Mixes with all ranks whenever this one has seen `period_frames` frames since the last mixing, and when it has no data left.

    A mixing begins with one message of 16 bytes, in which ranks wait for the slowest: the sum of their frames, and of their votes. Then
    comes `mix`, which a subclass defines, unless nobody has seen a frame.

    since_last  frames of this rank since the last mixing
    """

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.since_last = 0

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Mix when the period is over, and whenever this rank has no data left."""
        self.since_last += frames
        if frames and self.since_last < self.options.period_frames:
            return None
        if self.comm.size > 1:
            finish_on_device(master)
        total, votes = self.waiting(self.comm.allreduce, np.array([self.since_last, self.vote], np.int64)).tolist()
        if total and self.comm.size > 1:
            self.mixing(self.mix, master, total)
        self.since_last, self.vote = 0, False
        return Mixing(total, votes)

    def mix(self, master: torch.Tensor, total: int) -> None:
        """Change `master` in place, with all ranks; `total` is the sum of their `since_last`."""
        raise NotImplementedError
