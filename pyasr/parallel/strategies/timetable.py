"""When ranks mix in an epoch. All know it from the beginning, so that no message is needed to agree, unless minibatches have any size."""

from __future__ import annotations

import numpy as np


def in_whole_minibatches(frames: int, minibatch: int) -> int:
    """`frames`, rounded up to whole minibatches."""
    return -(-frames // minibatch) * minibatch


class Timetable:
    """The mixings of one epoch.

    totals     frames of each rank in the epoch
    period     frames of a rank between two mixings
    minibatch  the greatest number of frames in one step

    With the period n rounded up to whole minibatches, rank r takes part in mixing j = 1, 2, ... after the first minibatch with which it has
    seen min(j n, totals[r]) frames. There are as many as the rank with most data needs; the others take part in the rest as soon as they
    are called. Of the frames between mixings j - 1 and j rank r has

        n_r = min(j n, totals[r]) - min((j - 1) n, totals[r])
    """

    def __init__(self, totals: list[int], period: int, minibatch: int):
        self.totals = np.array(totals, np.int64)
        self.period = in_whole_minibatches(period, minibatch)
        self.num_mixings = max(1, -(-int(self.totals.max()) // self.period))

    def is_due(self, rank: int, own_frames: int, mixing: int) -> bool:
        """Whether a rank that has seen `own_frames` in this epoch is to take part in a mixing (1, 2, ...)."""
        return own_frames >= min(mixing * self.period, self.totals[rank])

    def shares(self, mixing: int) -> np.ndarray:
        """n_r of each rank, int64 (P,)."""
        return np.minimum(mixing * self.period, self.totals) - np.minimum((mixing - 1) * self.period, self.totals)

    def is_last(self, mixing: int) -> bool:
        """Whether nobody has data left after a mixing."""
        return mixing == self.num_mixings


class MinibatchTimetable:
    """The mixings of an epoch in which ranks mix after each of their minibatches, whose frames they tell each other as they come.

    left  frames of each rank's minibatches that are to be told of, int64 (P,)
    """

    def __init__(self, left: list[int]):
        self.left, self._shares, self._mixing = np.array(left, np.int64), np.zeros(len(left), np.int64), 0

    def knows(self, mixing: int) -> bool:
        """Whether ranks have told of the minibatches before a mixing."""
        return mixing == self._mixing

    def tell(self, mixing: int, shares: list[int]) -> None:
        """Each rank's minibatch before a mixing has so many frames."""
        self._shares, self._mixing = np.array(shares, np.int64), mixing
        self.left -= self._shares

    def is_due(self, rank: int, own_frames: int, mixing: int) -> bool:
        """Always: no rank has had two minibatches."""
        return True

    def shares(self, mixing: int) -> np.ndarray:
        """Frames of each rank's minibatch, int64 (P,)."""
        return self._shares

    def is_last(self, mixing: int) -> bool:
        """Whether nobody has data left after a mixing; whoever has had none before it has none later."""
        return not (self.left.any() and self._shares.any())
