"""What the mock GPU counts: launches, bytes, waits of the host, and where in the code they come from."""

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
    """What one thread has had the device do.

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
        """All of them."""
        return self.launches.total()

    @property
    def blocking_copies(self) -> list[str]:
        """Those of `syncs` that are copies between host and device."""
        return [sync for sync in self.syncs if sync.startswith("copy")]


def place() -> str:
    """The innermost code outside torch and this file that is at work: "file:line function"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OPAQUE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


def bytes_moved(name: str, inputs: list[torch.Tensor], outputs: list) -> int:
    """What a kernel reads and writes; of expanded dimensions one element, of a table from which it gathers
    what it takes."""
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
