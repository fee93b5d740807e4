"""Loops over bfloat16 tensors on a CPU in a single pass over memory, where torch takes several passes.

A bfloat16 is the upper half of a float32; numba, which does not have the type, handles it as uint16.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.base.compiled.kernels import njit

_UPPER, _ONE, _BELOW_HALF = np.uint32(16), np.uint32(1), np.uint32(0x7FFF)
_NAN = np.uint16(0x7FC0)


def descend(master: torch.Tensor, grad: torch.Tensor, work: torch.Tensor, factor: float) -> None:
    """master += factor * grad;  work = master, rounded;  grad = 0: an update of parameters.

    All are contiguous (n,); `master` is float32, the others are bfloat16.
    """
    _descend(master.numpy(), _bits(grad), _bits(work), np.float32(factor))


def subtract_from(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """y <- x - y; returns the squared norms of x and of the new y before rounding. Both bfloat16, contiguous,
    of shape (N, D).

    Rows are summed in float32: large numbers may overflow.
    """
    squares = np.zeros(2)
    _subtract_from(_bits(x), _bits(y), squares)
    return float(squares[0]), float(squares[1])


def _bits(x: torch.Tensor) -> np.ndarray:
    """The memory of a bfloat16 tensor."""
    return x.view(torch.int16).numpy().view(np.uint16)


@njit(inline="always")
def _widened(half):
    """The float32 of a bfloat16's bits."""
    return np.uint32(np.uint32(half) << _UPPER).view(np.float32)


@njit(inline="always")
def _rounded(value):
    """Bits of the bfloat16 nearest to a float32, ties to even. A NaN stays a NaN, although its bits may
    overflow in the addition."""
    bits = np.float32(value).view(np.uint32)
    nearest = np.uint16((bits + _BELOW_HALF + ((bits >> _UPPER) & _ONE)) >> _UPPER)
    return nearest if value == value else _NAN


@njit(nogil=True, cache=True)
def _descend(master, grad, work, factor):
    for i in range(len(master)):
        value = master[i] + factor * _widened(grad[i])
        master[i] = value
        work[i] = _rounded(value)
        grad[i] = np.uint16(0)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _subtract_from(x, y, squares):
    for n in range(len(x)):
        of_x, of_y = np.float32(0), np.float32(0)
        for i in range(x.shape[1]):
            value = _widened(x[n, i])
            rest = value - _widened(y[n, i])
            y[n, i] = _rounded(rest)
            of_x += value * value
            of_y += rest * rest
        squares[0] += np.float64(of_x)
        squares[1] += np.float64(of_y)
