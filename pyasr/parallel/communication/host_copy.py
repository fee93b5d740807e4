"""Copies of vectors in host memory, where ranks mix them: MPI never accesses a GPU's memory.

    host = HostCopy()
    host.change(master, wire.mean)            # `master` is the mean over ranks, on any device

The host memory for a GPU's vector is pinned, so that copies are asynchronous, and is reused, because the
allocation of new pages takes longer than a copy. Copies use a stream of their own, concurrent with the GPU's
computation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyasr.parallel.communication.ring import spans
from pyasr.tensor.copies import copy_to_device

# elements of a piece, 40 MB: with smaller messages, the sum over the ranks of a host takes longer than the
# copies
MIN_PIECE = 10_000_000


class HostCopy:
    """A float32 copy of one vector (n,) at a time, of any floating type on any device. A float32 vector in
    host memory is not copied."""

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None

    def change(
        self, x: torch.Tensor, communicate: Callable[[torch.Tensor], object], by_pieces: bool = False
    ) -> None:
        """Let `communicate` change `x`, float32, in place in host memory.

        by_pieces  whether a GPU's `x` may be passed piece by piece, with the same pieces on all ranks, to
                   overlap mixing with copies
        """
        if x.device.type == "cpu":
            communicate(x)
            return
        parts = spans(0, len(x), max(len(x) // MIN_PIECE, 1) if by_pieces else 1)
        for part, wait in [(part, self.fetch(x, part)) for part in parts]:
            communicate(wait())
            self.put_back(x, part)
        self.finish(x)

    def fetch(self, x: torch.Tensor, part: slice) -> Callable[[], torch.Tensor]:
        """Start to copy a part of `x`, after the work queued on its device so far. The returned function
        waits for the copy and returns it."""
        copy = self._copy_of(x)[part]
        if x.device.type == "cpu":
            return lambda: copy if _is_own_copy(x) else copy.copy_(x[part])
        computed = torch.cuda.current_stream(x.device).record_event()
        stream = self._stream
        assert stream is not None
        with torch.cuda.stream(stream):
            stream.wait_event(computed)
            copy.copy_(x[part].float(), non_blocking=True)
            copied = stream.record_event()
        return lambda: copied.synchronize() or copy

    def put_back(self, x: torch.Tensor, part: slice) -> None:
        """Start to copy a part back; do not change the host copy until it is fetched again."""
        if x.device.type != "cpu":
            with torch.cuda.stream(self._stream):
                copy_to_device(self._copy_of(x)[part], x[part])
        elif not _is_own_copy(x):
            x[part].copy_(self._copy_of(x)[part])

    def finish(self, x: torch.Tensor) -> None:
        """Make later work of the device wait for all copies, without blocking the host."""
        if x.device.type != "cpu":
            torch.cuda.current_stream(x.device).wait_stream(self._stream)

    def _copy_of(self, x: torch.Tensor) -> torch.Tensor:
        """The host memory for `x`."""
        if _is_own_copy(x):
            return x
        if self._memory is None or len(self._memory) < len(x):
            self._memory = torch.empty(len(x), pin_memory=x.is_cuda)
            self._stream = torch.cuda.Stream(x.device) if x.is_cuda else None
        return self._memory[: len(x)]


def _is_own_copy(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32
