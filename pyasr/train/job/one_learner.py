"""The model of a single learner, saved in addition to the mean of all learners. H. Su's program writes this
model and takes no mean.

If learners mix with a few others only, they differ after every mixing. An epoch ends with the mean of all
learners, which is the model of the training. This module keeps the parameters of one learner just before
that, after the last mixing of the epoch: those of rank 0, or of the first learning rank if rank 0 is a
server. If the mixing itself makes all learners equal, they are the parameters of all.
"""

from __future__ import annotations

import torch

from pyasr.parallel.strategies import Strategy

DIRECTORY = "learner"  # subdirectory of OUT


class OneLearner:
    """Keeps the parameters of the rank whose strategy `is_logger`.

    kept   parameters after the last mixing of the last accepted epoch; None before that, and on other ranks
    """

    def __init__(self, strategy: Strategy):
        self.strategy, self.kept = strategy, None
        self._latest: torch.Tensor | None = None

    def after_mixing(self, master: torch.Tensor) -> None:
        """Note the parameters of this rank after the last mixing of an epoch."""
        if self.strategy.is_logger:
            self._latest = master.clone()

    def end_epoch(self, master: torch.Tensor, accepted: bool) -> None:
        """End an epoch. `master` is the mean of all ranks; `accepted` is False if the schedule returned to
        earlier parameters."""
        if accepted and self.strategy.is_logger:
            self.kept = master.clone() if self._latest is None else self._latest
        self._latest = None

    def parameters(self, master: torch.Tensor) -> torch.Tensor:
        """Parameters of the learner, on all ranks; `master`, the model of all, is used if none were kept.
        Every rank must call this."""
        comm, own = self.strategy.comm, master if self.kept is None else self.kept
        source_rank = int(comm.reduce_scalar(comm.rank if self.strategy.is_logger else comm.size, "min"))
        return comm.bcast(own.to("cpu", copy=True), source_rank)
