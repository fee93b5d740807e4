r"""Base of asynchronous schemes, in which a rank waits for all others only at the end of an epoch.

Every rank may draw from all data, in its own order, so that fast ranks do more (arXiv:1904.04956,
arXiv:2110.11199). An epoch ends when all ranks together have processed its number of frames. Each message
carries a vector with the frames of each rank, of which both ends keep the maxima, so every rank can estimate
the progress of the others. The first rank to see that the epoch is over notifies all others. Then the ranks
synchronise: they take the same parameters.

An epoch consists of segments, each of which ends with a synchronisation. All segments but the last end for a
checkpoint or a change of the network: after a number of frames, or at the request of any rank, whichever
comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.base import Mixing, Strategy

if TYPE_CHECKING:
    import torch

_END_TAG = 1


class AsynchronousStrategy(Strategy):
    """Counts frames, and synchronises with all ranks at the end of each segment.

    goal            frames of an epoch
    done            frames of the epoch that all ranks have processed in the finished segments; 0 between
                    epochs
    segment_frames  frames of the present segment
    own_frames      frames that this rank has processed in the segment
    counts          frames that each rank has processed in it, as far as this one knows, int64 (P,)
    base            the parameters that the learner was given last: its move is `master - base`
    """

    draws_from_all = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.counts, self.goal, self.done = np.zeros(comm.size, np.int64), 0, 0
        self.notices = comm.split(0)

    def next_synchronisation(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """Immediately."""
        return frames

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Set the goal, unless the epoch is resumed."""
        if not self.done:
            self.goal = self.epoch_frames(frames)
        self.continue_epoch()

    def continue_epoch(self) -> None:
        """Begin a segment, with all counts at 0."""
        left = self.goal - self.done
        self.segment_frames = min(left, self.training.frames_to_synchronisation() or left)
        self.counts[:] = 0
        self.own_frames, self._num_reported, self._has_notified = 0, 0, False

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Share the learner's move; synchronise with all ranks if the segment is over."""
        self.own_frames += frames
        changed = self.share_move(master, frames)
        if self.is_over(frames):
            return self._synchronise(master)
        return Mixing(self._new_frames(), last=False, equal=False, joint=False) if changed else None

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """Count the frames and apply the scheme to the learner's move. Returns whether `master` changed."""
        raise NotImplementedError

    def finish(self, master: torch.Tensor) -> None:
        """End all exchanges with other ranks; `master` becomes this rank's contribution to the consensus."""
        raise NotImplementedError

    def is_over(self, frames: int) -> bool:
        """Whether the segment is over for this rank."""
        if not frames or self.notices.probe(_END_TAG) is not None:
            return True
        if self.counts.sum() < self.segment_frames and not self.training.wants_synchronisation():
            return False
        self._notify_all()
        return True

    def _notify_all(self) -> None:
        """Notify all ranks that the segment is over."""
        self._has_notified = True
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self.notices.send(np.zeros(1, np.uint8), rank, _END_TAG)

    def _receive_notices(self) -> None:
        """Receive the notices of all ranks that have sent one."""
        for rank, has_notified in enumerate(self.comm.allgather(self._has_notified)):
            if has_notified and rank != self.comm.rank:
                self.notices.receive(np.zeros(1, np.uint8), _END_TAG, rank)

    def _synchronise(self, master: torch.Tensor) -> Mixing:
        self.waiting(self.finish, master)
        self.waiting(self._receive_notices)
        frames = int(self.waiting(self.comm.reduce_scalar, self.own_frames))
        self.done += frames
        last = self.done >= self.goal or not frames  # after a segment without frames, no rank has data left
        if last and self.comm.size > 1:
            self.training.before_consensus()
        if last:
            self.training.after_mixing(master)
        self.mix_measured(master, self.consensus)
        self.adopt(master)
        self.done = 0 if last else self.done
        return Mixing(frames - self._num_reported, last, equal=True, saves=not last)

    def state_dict(self) -> dict:
        """Position in the epoch, at the end of a segment."""
        return {**super().state_dict(), "done": self.done, "goal": self.goal}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.done, self.goal = state["done"], state["goal"]

    def resume_resized(self, state: dict) -> None:
        """Restore the position in the epoch; these ranks process the rest of it."""
        super().resume_resized(state)
        self.done, self.goal = state["done"], state["goal"]

    def _new_frames(self) -> int:
        """Frames of all ranks that have not been reported to the training loop yet, at most the frames of the
        segment."""
        known = min(int(self.counts.sum()), self.segment_frames)
        frames, self._num_reported = known - self._num_reported, known
        return frames


def merge(counts: np.ndarray, others: np.ndarray) -> None:
    """Update the counts by those of another rank: keep the maxima."""
    np.maximum(counts, others, out=counts)
