"""Sums of squares without overflow or underflow, and, except on the CPU, without synchronisation."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

# a number for data on a CPU; a scalar tensor for data on another device, to avoid synchronisation
Number: TypeAlias = float | Tensor

_MIN_SAFE, _MAX_SAFE = 1e-28, 1e36
_ROW, _MIN_ROW = 1024, 128


def fits_float32(square: float) -> bool:
    """Whether float32 represents a sum of squares with full precision."""
    return _MIN_SAFE < square < _MAX_SAFE


def sum_of_squares(x: Tensor) -> Number:
    """The squared Frobenius norm.

    On a CPU, the sum is computed in float32, which is several times as fast, unless that overflows or
    underflows. The norms of bfloat16 rows are rounded to that type, with an error of about 1e-4 of the sum.
    """
    if x.device.type != "cpu":
        return torch.linalg.vector_norm(x, dtype=torch.float64).square()
    if x.dtype != torch.float64:
        rows = x if x.dim() > 1 else x.view(-1, math.gcd(len(x), _ROW))
        narrow = rows.dtype != torch.float32 and not (rows.is_contiguous() and rows.shape[1] >= _MIN_ROW)
        norms = (
            torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32 if narrow else None).double().numpy()
        )
        square = float(norms @ norms)
        if fits_float32(square):
            return square
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
