"""One pass over all that an update of bfloat16 parameters with float32 masters touches, where torch takes five."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit


def descend(master: torch.Tensor, grad: torch.Tensor, work: torch.Tensor, factor: float) -> None:
    """master += factor * grad;  work = master, rounded;  grad = 0.

    All on a CPU and contiguous (n,); `master` float32, the others bfloat16.
    """
    _descend(master.numpy(), _bits(grad), _bits(work), np.float32(factor))


def _bits(x: torch.Tensor) -> np.ndarray:
    """The memory of a bfloat16 tensor as uint16: the upper half of a float32."""
    return x.view(torch.int16).numpy().view(np.uint16)


@njit(nogil=True, cache=True)
def _descend(master, grad, work, factor):
    upper, half, one = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)
    for i in range(len(master)):
        value = master[i] + factor * np.uint32(np.uint32(grad[i]) << upper).view(np.float32)
        master[i] = value
        bits = np.float32(value).view(np.uint32)
        work[i] = np.uint16((bits + half + ((bits >> upper) & one)) >> upper)  # to nearest, halves to even
        grad[i] = np.uint16(0)
