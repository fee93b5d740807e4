"""Products of float32 matrices on a CPU, by oneDNN where that is the faster library.

torch takes MKL for them, which on processors of AMD does not use registers of 512 bits: half the speed of oneDNN, which torch has as
well, for bfloat16. Elsewhere, and for other types, devices and small matrices, these functions are torch's own. They have no derivatives.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from pyasr.tensor.processor import agrees, has_avx512, is_from_amd

_LEAST_WORK = 1 << 20  # products of numbers in one of matrices that are not small
_TOLERANCE = 1e-5


@functools.cache
def prefers_onednn() -> bool:
    """Whether this processor is of that kind, and oneDNN gives these products."""
    if not (is_from_amd() and has_avx512()):
        return False
    x, weight, bias = torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(-1, 1, 20).view(5, 4), torch.linspace(0, 1, 5)
    return agrees(lambda: _by_onednn(x, weight, bias), lambda: F.linear(x, weight, bias), _TOLERANCE)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `torch.nn.functional.linear` of x (..., K) and weight (N, K)."""
    return _by_onednn(x, weight, bias) if _is_for_onednn(x, weight) else F.linear(x, weight, bias)


def mm(a: Tensor, b: Tensor) -> Tensor:
    """a b of (M, K) and (K, N), which may be transposed views."""
    return affine(a, b.T) if _is_for_onednn(a, b.T) else a @ b


def add_mm(total: Tensor, a: Tensor, b: Tensor, factor: float = 1.0) -> None:
    """total += factor a b."""
    if _is_for_onednn(a, b.T):
        total.add_(affine(a, b.T), alpha=factor)
    else:
        total.addmm_(a, b, alpha=factor)


def bmm_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out = a b of (B, M, K) and (B, K, N), one product on a GPU; `out` may be a part of a larger tensor."""
    if out.device.type == "cpu":
        for one, left, right in zip(out, a, b, strict=True):
            one.copy_(mm(left, right))
    else:
        torch.bmm(a, b, out=out)


def add_bmm(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, as `bmm_into`."""
    if total.device.type == "cpu":
        for one, left, right in zip(total, a, b, strict=True):
            add_mm(one, left, right)
    else:
        total.baddbmm_(a, b)


def minus_mm(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """x - a b."""
    return x - affine(a, b.T) if _is_for_onednn(a, b.T) else torch.addmm(x, a, b, alpha=-1)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    return (x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu" and x.numel() * len(weight) >= _LEAST_WORK
            and prefers_onednn())  # fmt: skip
