r"""Base of asynchronous schemes, in which a rank waits for all others only at the end of an epoch.

Every rank may draw from all data, in its own order, so that fast ranks do more (arXiv:1904.04956,
arXiv:2110.11199). An epoch ends when all ranks together have processed its number of frames. Each message
carries a vector with the frames of each rank, of which both ends keep the maxima, so every rank can estimate
the progress of the others. The first rank to see that the epoch is over notifies all others. Then the ranks
meet and take the same parameters.

An epoch consists of stretches, each of which ends with such a meeting. All stretches but the last end for a
checkpoint or a change of the network: after a number of frames, or when the clock of any rank says so,
whichever comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.base import Mixing, Strategy

if TYPE_CHECKING:
    import torch

_OVER_TAG = 1


class AsynchronousStrategy(Strategy):
    """Counts frames, and meets the other ranks at the end of each stretch.

    goal        frames of an epoch
    done        frames of the epoch that all ranks have processed in the finished stretches; 0 between epochs
    ahead       frames of the present stretch
    own_frames  frames that this rank has processed in the stretch
    counts      frames that each rank has processed in it, as far as this one knows, int64 (P,)
    base        the parameters that the learner was given last: its move is `master - base`
    """

    draws_from_all = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.counts, self.goal, self.done = np.zeros(comm.size, np.int64), 0, 0
        self.notices = comm.split(0)

    def meets(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """Immediately."""
        return frames

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Set the goal, unless the epoch is resumed."""
        if not self.done:
            self.goal = self.epoch_frames(frames)
        self.go_on()

    def go_on(self) -> None:
        """Begin a stretch, with all counts at 0."""
        left = self.goal - self.done
        self.ahead = min(left, self.training.frames_to_meeting() or left)
        self.counts[:] = 0
        self.own_frames, self._reported, self._has_notified = 0, 0, False

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Share the learner's move; meet the other ranks if the stretch is over."""
        self.own_frames += frames
        changed = self.share_move(master, frames)
        if self.is_over(frames):
            return self._meet(master)
        return Mixing(self._news(), last=False, equal=False, joint=False) if changed else None

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """Count the frames and apply the scheme to the learner's move. Returns whether `master` changed."""
        raise NotImplementedError

    def finish(self, master: torch.Tensor) -> None:
        """End all exchanges with other ranks; `master` becomes this rank's contribution to the consensus."""
        raise NotImplementedError

    def is_over(self, frames: int) -> bool:
        """Whether the stretch is over for this rank."""
        if not frames or self.notices.waiting(_OVER_TAG) is not None:
            return True
        if self.counts.sum() < self.ahead and not self.training.wants_meeting():
            return False
        self._notify_all()
        return True

    def _notify_all(self) -> None:
        """Notify all ranks that the stretch is over."""
        self._has_notified = True
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self.notices.send(np.zeros(1, np.uint8), rank, _OVER_TAG)

    def _hear_all(self) -> None:
        """Receive the notices of all ranks that have sent one."""
        for rank, has_notified in enumerate(self.comm.allgather(self._has_notified)):
            if has_notified and rank != self.comm.rank:
                self.notices.receive(np.zeros(1, np.uint8), _OVER_TAG, rank)

    def _meet(self, master: torch.Tensor) -> Mixing:
        self.waiting(self.finish, master)
        self.waiting(self._hear_all)
        frames = int(self.waiting(self.comm.reduce_scalar, self.own_frames))
        self.done += frames
        last = self.done >= self.goal or not frames  # after a stretch without frames, no rank has data left
        if last and self.comm.size > 1:
            self.training.before_consensus()
        if last:
            self.training.after_mixing(master)
        self.mix_measured(master, self.consensus)
        self.adopt(master)
        self.done = 0 if last else self.done
        return Mixing(frames - self._reported, last, equal=True, saves=not last)

    def state_dict(self) -> dict:
        """Position in the epoch, at the end of a stretch."""
        return {**super().state_dict(), "done": self.done, "goal": self.goal}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.done, self.goal = state["done"], state["goal"]

    def resume_resized(self, state: dict) -> None:
        """Restore the position in the epoch; these ranks process the rest of it."""
        super().resume_resized(state)
        self.done, self.goal = state["done"], state["goal"]

    def _news(self) -> int:
        """Frames of all ranks that have not been reported to the training loop yet, at most the frames of the
        stretch."""
        known = min(int(self.counts.sum()), self.ahead)
        news, self._reported = known - self._reported, known
        return news


def merge(counts: np.ndarray, others: np.ndarray) -> None:
    """Update the counts by those of another rank: keep the maxima."""
    np.maximum(counts, others, out=counts)
