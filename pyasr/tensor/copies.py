"""Copies from host memory to a GPU with type conversion on the GPU: torch converts on the host, in memory
that is not pinned."""

from __future__ import annotations

import torch
from torch import Tensor

_PIECE_BYTES = 16 << 20  # bytes of a piece, which is on the device in both types


def moved(source: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The tensor as `dtype` on `device`; the copy from pinned memory to a GPU is asynchronous."""
    if device.type == "cpu" or source.dtype == dtype:
        return source.to(device, dtype, non_blocking=True)
    target = torch.empty(source.shape, dtype=dtype, device=device)
    copy_to_device(source, target)
    return target


def copy_to_device(source: Tensor, target: Tensor) -> None:
    """Copy `source` (N, ...), in host memory, to `target` on a GPU, of the same shape and any type, on the
    current stream."""
    if source.dtype == target.dtype:
        target.copy_(source, non_blocking=True)
        return
    rows = max(_PIECE_BYTES * len(source) // max(source.nbytes, 1), 1)
    for here, there in zip(source.split(rows), target.split(rows)):
        there.copy_(here.to(target.device, non_blocking=True))
