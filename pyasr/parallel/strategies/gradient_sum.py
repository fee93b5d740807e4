"""Gradients that are added over ranks while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.strategies.wire import Wire

if TYPE_CHECKING:
    import torch

_LEAST_PART = 1 << 18  # elements that travel together, 1 MB: smaller messages are all latency
_NUM_PARTS = 4  # about, if they can be so large: what is computed last travels when nothing is left to be computed


class GradientSum:
    """Adds the gradient of a learner over ranks, divided by their number, from its end to its beginning, while it is being computed.

    The learner calls `attach` once for its buffer, and for every minibatch `begin`, `ready` as often as it likes, and `finish`.

    wire      by which it travels
    shares    tells, from the frames of this rank's minibatch, those n_r of each rank's, float64 (P,), or None: nothing is to be added;
              called as a minibatch begins
    timed     calls the function that it is given, and puts down how long that took
    frames    of the minibatch, the mean over ranks; None: the gradient is left alone
    has_been  whether there has been a sum since the last mixing
    rests     to be set while this rank learns by itself: nothing is added
    """

    def __init__(self, wire: Wire, shares: Callable[[int], np.ndarray | None], timed: Callable[[Callable], None]):
        self._wire, self._shares, self._timed = wire, shares, timed
        self.frames, self.has_been, self._task = None, False, None
        self.rests = False

    def attach(self, grad: torch.Tensor, begins: list[int]) -> None:
        """Add up this tensor (n,), of any type, on any device, from now on; parameters begin at `begins` of it, ascending."""
        from pyasr.parallel.host_copy import HostCopy  # here, because it imports torch; see `base`

        self._grad, self._parts, self._host = grad, parts_from_the_end(begins, len(grad)), HostCopy()

    def begin(self, num_frames: int) -> None:
        """A minibatch begins, on all ranks; this one's has so many frames, 0 where there is none."""
        shares = None if self.rests else self._shares(num_frames)
        self.frames, self._left = None, []
        if shares is not None and shares.any():
            self.frames = float(shares.mean())
            self._left = list(self._parts)

    def leave_out(self) -> None:
        """The next gradient is not to be added."""
        self.frames, self._left = None, []

    def ready(self, begin: int) -> None:
        """The gradient is complete from element `begin` on. The last part is left to `finish`, which has nothing beside it."""
        while len(self._left) > 1 and self._left[0].start >= begin:
            self._task = self._wire.comm.background(self._adding(self._left.pop(0)))

    def finish(self) -> None:
        """All of it is complete; returns when it is the sum, to what the device does from now on."""
        if self.frames is None:
            return
        for part in self._left:
            self._timed(self._adding(part))
            self._task = None
        self._host.finish(self._grad)
        self.has_been = True

    def _adding(self, part: slice) -> Callable[[], None]:
        """A function that adds this part over ranks when those before it have been."""
        before, wait = self._task, self._host.fetch(self._grad, part)

        def add() -> None:
            if before is not None:
                before.join()
            self._wire.sum_moves(wait(), 1 / self._wire.comm.size, 1.0)
            self._host.put_back(self._grad, part)

        return add


def parts_from_the_end(begins: list[int], length: int) -> list[slice]:
    """[0, length) in parts of whole parameters, from the end to the beginning, each large enough to travel alone, but the last. They are
    the same on all ranks, whether these have anything to compute or not."""
    parts, end, least = [], length, max(_LEAST_PART, length // _NUM_PARTS)
    for begin in reversed(begins):
        if end - begin >= least or begin == 0:
            parts.append(slice(begin, end))
            end = begin
    return parts
