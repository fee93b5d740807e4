"""A difference of bfloat16 matrices and both squared norms in one pass over memory, where torch takes three."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit


def subtract_from(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """y <- x - y; returns the squared norms of x and of the new y. On a CPU, both bfloat16, contiguous, of shape (N, D).

    Rows are added up in float32: large numbers may overflow.
    """
    squares = np.zeros(2)
    _subtract_from(_bits(x), _bits(y), squares)
    return float(squares[0]), float(squares[1])


def _bits(x: torch.Tensor) -> np.ndarray:
    """The memory of a bfloat16 tensor as uint16: the upper half of a float32."""
    return x.view(torch.int16).numpy().view(np.uint16)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _subtract_from(x, y, squares):
    upper, half, one = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)
    for n in range(len(x)):
        of_x, of_y = np.float32(0), np.float32(0)
        for i in range(x.shape[1]):
            value = np.uint32(np.uint32(x[n, i]) << upper).view(np.float32)
            rest = value - np.uint32(np.uint32(y[n, i]) << upper).view(np.float32)
            bits = np.float32(rest).view(np.uint32)
            y[n, i] = np.uint16((bits + half + ((bits >> upper) & one)) >> upper)  # to nearest, halves to even
            of_x += value * value
            of_y += rest * rest
        squares[0] += np.float64(of_x)
        squares[1] += np.float64(of_y)
