"""Copies of vectors in host memory, where ranks mix them: MPI is never handed a GPU's memory.

    host = HostCopy()
    host.change(master, wire.mean)            # `master` is the mean over ranks, whatever device it is on

The memory for what a GPU has is pinned, so that the GPU copies while the host goes on, and is kept from one copy to the next: to be given
new pages costs more than to copy. Copies have a stream of their own on the GPU, beside what it computes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyasr.parallel.ring import spans
from pyasr.tensor.copies import copy_to_device

LEAST_PIECE = 10_000_000  # elements of a piece, 40 MB: in smaller messages ranks of a host add more slowly than copies take


class HostCopy:
    """A float32 copy of one vector at a time (n,), of any floating type on any device. A float32 vector in host memory is its own copy."""

    def __init__(self):
        self._memory: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None

    def change(self, x: torch.Tensor, communicate: Callable[[torch.Tensor], object], by_pieces: bool = False) -> None:
        """Let `communicate` change `x`, float32, in place in host memory.

        by_pieces  a GPU's `x` may be given to it piece by piece, the same ones on all ranks: one is mixed while others are copied
        """
        if x.device.type == "cpu":
            communicate(x)
            return
        parts = spans(0, len(x), max(len(x) // LEAST_PIECE, 1) if by_pieces else 1)
        for part, wait in [(part, self.fetch(x, part)) for part in parts]:
            communicate(wait())
            self.put_back(x, part)
        self.finish(x)

    def fetch(self, x: torch.Tensor, part: slice) -> Callable[[], torch.Tensor]:
        """Begin to copy a part of `x`, as the work that its device has been given so far leaves it; the function returned waits for the
        copy, and gives it."""
        copy = self._copy_of(x)[part]
        if x.device.type == "cpu":
            return lambda: copy if _is_own_copy(x) else copy.copy_(x[part])
        computed = torch.cuda.current_stream(x.device).record_event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(computed)
            copy.copy_(x[part].float(), non_blocking=True)
            copied = self._stream.record_event()
        return lambda: copied.synchronize() or copy

    def put_back(self, x: torch.Tensor, part: slice) -> None:
        """Begin to copy a part back; it must be left alone until it is fetched again."""
        if x.device.type != "cpu":
            with torch.cuda.stream(self._stream):
                copy_to_device(self._copy_of(x)[part], x[part])
        elif not _is_own_copy(x):
            x[part].copy_(self._copy_of(x)[part])

    def finish(self, x: torch.Tensor) -> None:
        """Let what the device does from now on come after all copies; the host waits for nothing."""
        if x.device.type != "cpu":
            torch.cuda.current_stream(x.device).wait_stream(self._stream)

    def _copy_of(self, x: torch.Tensor) -> torch.Tensor:
        """The memory for `x`."""
        if _is_own_copy(x):
            return x
        if self._memory is None or len(self._memory) < len(x):
            self._memory = torch.empty(len(x), pin_memory=x.is_cuda)
            self._stream = torch.cuda.Stream(x.device) if x.is_cuda else None
        return self._memory[: len(x)]


def _is_own_copy(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32
