r"""What asynchronous schemes have in common: no rank waits for all others before the end of an epoch.

Every rank may draw from all data, in an order of its own, so that fast ranks do more (arXiv:1904.04956, arXiv:2110.11199): an epoch ends
when all together have seen as many frames as there are. What the others have seen a rank knows from the messages it gets anyway: a vector
with the frames of each rank, of which both ends keep the greater numbers. Who finds that the epoch is over tells all. Then the ranks
meet, and take the same parameters.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.parallel.strategies.base import Mixing, Strategy

_OVER_TAG = 1


class AsynchronousStrategy(Strategy):
    """Counts frames, and meets at the end of epochs.

    goal        frames of an epoch
    own_frames  of these this rank has seen
    counts      frames that each rank has seen in this epoch, as far as this one knows, int64 (P,)
    base        the parameters that the learner was given last, so that `master` less these is its move
    """

    draws_from_all = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        if options.first_mixing == "best":
            raise UserError(f"--first-mixing best: ranks of --parallel {options.parallel} never mix all at once; leave it out")
        self.counts = np.zeros(comm.size, np.int64)
        self.notices = comm.split(0)

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Set the goal; nobody has seen a frame."""
        self.goal = self.epoch_frames(frames)
        self.counts[:] = 0
        self.own_frames, self._told, self._has_told = 0, 0, False

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Hand over the learner's move; meet when the goal is reached."""
        self.own_frames += frames
        changed = self.share_move(master, frames)
        if self.is_over(frames):
            return self._meet(master)
        return Mixing(self._news(), last=False, equal=False, joint=False) if changed else None

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """Count the frames, and do with the learner's move what the scheme does; returns whether `master` has changed."""
        raise NotImplementedError

    def finish(self, master: torch.Tensor) -> None:
        """End all exchanges with other ranks; `master` is then what this rank brings to the consensus."""
        raise NotImplementedError

    def is_over(self, frames: int) -> bool:
        """Whether this rank has nothing more to do in this epoch."""
        if not frames or self.notices.waiting(_OVER_TAG) is not None:
            return True
        if self.counts.sum() < self.goal:
            return False
        self._tell_all()
        return True

    def _tell_all(self) -> None:
        """The epoch is over."""
        self._has_told = True
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self.notices.send(np.zeros(1, np.uint8), rank, _OVER_TAG)

    def _hear_all(self) -> None:
        """Take the notices of all that have told."""
        for rank, has_told in enumerate(self.comm.allgather(self._has_told)):
            if has_told and rank != self.comm.rank:
                self.notices.receive(np.zeros(1, np.uint8), _OVER_TAG, rank)

    def _meet(self, master: torch.Tensor) -> Mixing:
        self.waiting(self.finish, master)
        self._hear_all()
        if self.before_consensus and self.comm.size > 1:
            self.before_consensus()
        self.mix_measured(master, self.consensus)
        self.adopt(master)
        frames = int(self.comm.reduce_scalar(self.own_frames)) - self._told
        return Mixing(frames, last=True, equal=True)

    def _news(self) -> int:
        """Frames of all ranks that the loop has not been told of; never more than the epoch has."""
        known = min(int(self.counts.sum()), self.goal)
        news, self._told = known - self._told, known
        return news


def merge(counts: np.ndarray, others: np.ndarray) -> None:
    """Both ends of an exchange know what either knew: the greater numbers."""
    np.maximum(counts, others, out=counts)
