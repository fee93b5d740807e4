"""Counters of the mock GPU: launches, bytes, waits of the host, and their places in the code."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

_HERE = Path(__file__).parent
_OPAQUE = tuple(
    map(str, (Path(torch.__file__).parent, _HERE / "gpu_", _HERE / "mock_gpu.py", threading.__file__))
)


@dataclass
class Counts:
    """Device operations of one thread.

    launches    how often each (operation, place in the code) ran
    num_bytes   read and written by these
    syncs       where the host waited: "what: N bytes at place"
    copies      between host and device that the host did not wait for, in the same form
    """

    launches: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_bytes: int = 0
    syncs: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)

    @property
    def num_launches(self) -> int:
        """Number of all launches."""
        return self.launches.total()

    @property
    def blocking_copies(self) -> list[str]:
        """Entries of `syncs` that are copies between host and device."""
        return [sync for sync in self.syncs if sync.startswith("copy")]


def place() -> str:
    """Innermost active code outside torch and this file: "file:line function"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OPAQUE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


def bytes_moved(name: str, inputs: list[torch.Tensor], outputs: list) -> int:
    """Bytes that a kernel reads and writes. Expanded dimensions count as one element; a table from which
    elements are gathered counts by these elements."""
    written = sum(_num_bytes(x) for x in outputs if isinstance(x, torch.Tensor))
    if name in ("zero_", "fill_"):
        return written
    if name in ("index", "index_select", "gather", "embedding"):
        return 2 * written + sum(map(_num_bytes, inputs[1:]))
    return written + sum(map(_num_bytes, inputs))


def _num_bytes(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return tensor._nnz() * (tensor.element_size() + 8 * tensor.dim())
    number = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride()):
        number *= size if stride else min(size, 1)
    return number
