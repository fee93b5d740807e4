"""Times of the mixings of an epoch. All ranks know them at its beginning, without messages, unless the sizes
of minibatches differ."""

from __future__ import annotations

import numpy as np


def in_whole_minibatches(frames: int, minibatch: int) -> int:
    """`frames`, rounded up to whole minibatches."""
    return -(-frames // minibatch) * minibatch


class MixingSchedule:
    """The mixings of one epoch.

    totals     frames of each rank in the epoch
    period     frames of a rank between two mixings
    minibatch  maximum number of frames in a step

    With the period n rounded up to whole minibatches, rank r takes part in mixing j = 1, 2, ... after the
    first minibatch with which it has processed at least min(j n, totals[r]) frames. The number of mixings is
    that of the rank with the most data; the other ranks take part in the remaining mixings without training.
    Between mixings j - 1 and j, rank r processes
        n_r = min(j n, totals[r]) - min((j - 1) n, totals[r])
    """

    def __init__(self, totals: list[int], period: int, minibatch: int):
        self.totals = np.array(totals, np.int64)
        self.period = in_whole_minibatches(period, minibatch)
        self.num_mixings = max(1, -(-int(self.totals.max()) // self.period))

    def is_due(self, rank: int, own_frames: int, mixing: int) -> bool:
        """Whether a rank that has processed `own_frames` in this epoch is due for mixing 1, 2, ..."""
        return own_frames >= min(mixing * self.period, self.totals[rank])

    def shares(self, mixing: int) -> np.ndarray:
        """n_r of each rank, int64 (P,)."""
        return np.minimum(mixing * self.period, self.totals) - np.minimum(
            (mixing - 1) * self.period, self.totals
        )

    def is_last(self, mixing: int) -> bool:
        """Whether no rank has data left after a mixing."""
        return mixing == self.num_mixings


class MinibatchSchedule:
    """The mixings of an epoch in which ranks mix after each minibatch and exchange the sizes of their
    minibatches.

    left  frames of each rank's minibatches that have not been announced yet, int64 (P,)
    """

    def __init__(self, left: list[int]):
        self.left, self._shares, self._mixing = np.array(left, np.int64), np.zeros(len(left), np.int64), 0

    def has_shares(self, mixing: int) -> bool:
        """Whether ranks have announced the minibatches before a mixing."""
        return mixing == self._mixing

    def set_shares(self, mixing: int, shares: list[int]) -> None:
        """Set the frames of each rank's minibatch before a mixing."""
        self._shares, self._mixing = np.array(shares, np.int64), mixing
        self.left -= self._shares

    def is_due(self, rank: int, own_frames: int, mixing: int) -> bool:
        """Always true: a mixing follows each minibatch."""
        return True

    def shares(self, mixing: int) -> np.ndarray:
        """Frames of each rank's minibatch, int64 (P,)."""
        return self._shares

    def is_last(self, mixing: int) -> bool:
        """Whether no rank has data left after a mixing; a mixing without frames is the last."""
        return not (self.left.any() and self._shares.any())
