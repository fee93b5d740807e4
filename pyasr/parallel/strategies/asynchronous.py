r"""What asynchronous schemes have in common: no rank waits for all others before the end of an epoch.

Every rank may draw from all data, in an order of its own, so that fast ranks do more (arXiv:1904.04956, arXiv:2110.11199): an epoch ends
when all together have seen as many frames as there are. What the others have seen a rank knows from the messages it gets anyway: a vector
with the frames of each rank, of which both ends keep the greater numbers. Who finds that the epoch is over tells all. Then the ranks
meet, and take the same parameters.

An epoch has stretches: at the end of each the ranks meet, in the same way. All but the last end for a checkpoint, or for a change of
the network, after a number of frames, or when a rank's clock says so, whoever's is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.strategies.base import Mixing, Strategy

if TYPE_CHECKING:
    import torch

_OVER_TAG = 1


class AsynchronousStrategy(Strategy):
    """Counts frames, and meets at the end of stretches.

    goal        frames of an epoch
    done        of these all ranks have seen in the stretches that are over; 0 between epochs
    ahead       frames of the present stretch
    own_frames  that this rank has seen in it
    counts      frames that each rank has seen in it, as far as this one knows, int64 (P,)
    base        the parameters that the learner was given last, so that `master` less these is its move
    """

    draws_from_all = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.counts, self.goal, self.done = np.zeros(comm.size, np.int64), 0, 0
        self.notices = comm.split(0)

    def meets(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """At once."""
        return frames

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Set the goal, unless this is the rest of an epoch."""
        if not self.done:
            self.goal = self.epoch_frames(frames)
        self.go_on()

    def go_on(self) -> None:
        """A stretch begins, in which nobody has seen a frame."""
        left = self.goal - self.done
        self.ahead = min(left, self.training.frames_to_meeting() or left)
        self.counts[:] = 0
        self.own_frames, self._told, self._has_told = 0, 0, False

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Hand over the learner's move; meet when the stretch is over."""
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
        """Whether this rank has nothing more to do in this stretch."""
        if not frames or self.notices.waiting(_OVER_TAG) is not None:
            return True
        if self.counts.sum() < self.ahead and not self.training.wants_meeting():
            return False
        self._tell_all()
        return True

    def _tell_all(self) -> None:
        """The stretch is over."""
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
        self.waiting(self._hear_all)
        frames = int(self.waiting(self.comm.reduce_scalar, self.own_frames))
        self.done += frames
        last = self.done >= self.goal or not frames  # nobody who has seen none will see one
        if last and self.comm.size > 1:
            self.training.before_consensus()
        if last:
            self.training.after_mixing(master)
        self.mix_measured(master, self.consensus)
        self.adopt(master)
        self.done = 0 if last else self.done
        return Mixing(frames - self._told, last, equal=True, saves=not last)

    def state_dict(self) -> dict:
        """Place in the epoch, where a stretch ends."""
        return {**super().state_dict(), "done": self.done, "goal": self.goal}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        super().load_state_dict(state)
        self.done, self.goal = state["done"], state["goal"]

    def take_up(self, state: dict) -> None:
        """The rest of the epoch is for other ranks."""
        super().take_up(state)
        self.done, self.goal = state["done"], state["goal"]

    def _news(self) -> int:
        """Frames of all ranks that the loop has not been told of; never more than the stretch has."""
        known = min(int(self.counts.sum()), self.ahead)
        news, self._told = known - self._told, known
        return news


def merge(counts: np.ndarray, others: np.ndarray) -> None:
    """Both ends of an exchange know what either knew: the greater numbers."""
    np.maximum(counts, others, out=counts)
