"""Sums of squares that neither overflow nor underflow, and what they are on a device that need not be waited for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Number = float | Tensor  # for data on a CPU a number, for those on another device a scalar there, which need not be waited for

_LEAST, _GREATEST = 1e-28, 1e36
_ROW, _MIN_ROW = 1024, 128


def fits_float32(square: float) -> bool:
    """Whether float32 holds a sum of squares with all its digits."""
    return _LEAST < square < _GREATEST


def sum_of_squares(x: Tensor) -> Number:
    """The squared Frobenius norm.

    On a CPU it is summed in float32, several times as fast, unless that overflows or underflows. The norms of rows of bfloat16 are rounded
    to that type, to about 1e-4 of the sum.
    """
    if x.device.type != "cpu":
        return torch.linalg.vector_norm(x, dtype=torch.float64).square()
    if x.dtype != torch.float64:
        rows = x if x.dim() > 1 else x.view(-1, math.gcd(len(x), _ROW))
        narrow = rows.dtype != torch.float32 and not (rows.is_contiguous() and rows.shape[1] >= _MIN_ROW)
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32 if narrow else None).double().numpy()
        square = float(norms @ norms)
        if fits_float32(square):
            return square
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
