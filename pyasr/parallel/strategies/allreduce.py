r"""Periodic parameter averaging over all ranks.

Reference: H. Su, H. Chen, H. Xu, "Experiments on Parallel Training of Deep Neural Network using Model Averaging", arXiv:1507.01239.

P ranks start from the same parameters. Each trains on its own shard by SGD; when it has seen `period_frames` frames since the last
mixing, all parameters are averaged (the paper's Section 2):

    theta_r <- theta_r + sum of the rank's own updates           local training of rank r, n_r frames
    theta   <- sum_r n_r theta_r / sum_r n_r                     on every rank

The paper averages with equal weights and stops when the first rank runs out of data, dropping the rest of the others'. With weights n_r,
frames since the last mixing, a rank without data goes on taking part with weight 0 until nobody has any: nothing is dropped, nothing
hangs, and with even shards the two are the same. A mixing is two messages: 16 bytes for sum n_r and the
ranks' votes, in which ranks wait for the slowest, then the parameters.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.parallel.strategies.base import Mixing, Strategy, finish_on_device, register


@register("allreduce")
class AllreduceAveraging(Strategy):
    """Averages over all ranks whenever this rank has seen `period_frames` frames since the last mixing."""

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
            self.mixing(self._average, master, total)
        self.since_last, self.vote = 0, False
        return Mixing(total, votes)

    def _average(self, master: torch.Tensor, total: int) -> None:
        master.mul_(self.since_last / total)
        _sum_over_ranks(self.comm, master)


def _sum_over_ranks(comm, master: torch.Tensor) -> None:
    """In-place sum; parameters on another device travel through host memory."""
    if master.device.type == "cpu":
        comm.allreduce(master)
    else:
        master.copy_(comm.allreduce(master.cpu()))
