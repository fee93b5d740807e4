"""Sum of gradients over ranks, overlapped with the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.payload_codec import PayloadCodec

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Running

# minimum number of elements in a message, 1 MB: the time of smaller messages is mostly latency
_MIN_PART = 1 << 18
_NUM_PARTS = 4  # approximate number of messages; the last one does not overlap with computation


class GradientSum:
    """Averages a learner's gradient over ranks while it is computed, from its end to its beginning.

    The learner calls `attach` once for its buffer. For every minibatch, it calls `begin`, `ready` any number
    of times, and `finish`.

    wire      the `PayloadCodec` on which the gradient travels
    shares    function from the frames of this rank's minibatch to the frames n_r of each rank's, float64
              (P,), or None if gradients are not summed; called at the beginning of a minibatch
    timed     function that calls its argument and records the time taken
    frames    frames of the minibatch, the mean over ranks; None: the gradient stays local
    has_been  whether a gradient has been summed since the last mixing
    is_idle   set it while this rank learns alone: gradients are not summed
    """

    def __init__(
        self,
        wire: PayloadCodec,
        shares: Callable[[int], np.ndarray | None],
        timed: Callable[[Callable], None],
    ):
        self._wire, self._shares, self._timed = wire, shares, timed
        self.frames: float | None = None
        self._task: Running | None = None
        self.has_been = self.is_idle = False

    def attach(self, grad: torch.Tensor, begins: list[int]) -> None:
        """Sum this tensor (n,), of any type and on any device, from now on; `begins` are the offsets of its
        parameters, ascending."""
        # here, because it imports torch; see `base`
        from pyasr.parallel.communication.host_copy import HostCopy

        self._grad, self._parts, self._host = grad, parts_from_the_end(begins, len(grad)), HostCopy()

    def begin(self, num_frames: int) -> None:
        """Begin a minibatch, on all ranks; this rank's has `num_frames` frames, 0 if it has none."""
        shares = None if self.is_idle else self._shares(num_frames)
        self.frames, self._left = None, []
        if shares is not None and shares.any():
            self.frames = float(shares.mean())
            self._left = list(self._parts)

    def leave_out(self) -> None:
        """Exclude the next gradient from the sum."""
        self.frames, self._left = None, []

    def ready(self, begin: int) -> None:
        """Report that the gradient is complete from element `begin` on. The last part is sent by `finish`."""
        while len(self._left) > 1 and self._left[0].start >= begin:
            self._task = self._wire.comm.background(self._adding(self._left.pop(0)))

    def finish(self) -> None:
        """Report that the gradient is complete; returns when the sum is available to subsequent work of the
        device."""
        if self.frames is None:
            return
        for part in self._left:
            self._timed(self._adding(part))
            self._task = None
        self._host.finish(self._grad)
        self.has_been = True

    def _adding(self, part: slice) -> Callable[[], None]:
        """A function that sums this part over ranks after the previous parts."""
        before, wait = self._task, self._host.fetch(self._grad, part)

        def add() -> None:
            if before is not None:
                before.join()
            self._wire.sum_moves(wait(), 1 / self._wire.comm.size, 1.0)
            self._host.put_back(self._grad, part)

        return add


def parts_from_the_end(begins: list[int], length: int) -> list[slice]:
    """Split [0, length) into parts of whole parameters, from the end to the beginning. Each part but the last
    is large enough for a message of its own. The parts are the same on all ranks, including ranks without
    data."""
    parts, end, least = [], length, max(_MIN_PART, length // _NUM_PARTS)
    for begin in reversed(begins):
        if end - begin >= least or begin == 0:
            parts.append(slice(begin, end))
            end = begin
    return parts
