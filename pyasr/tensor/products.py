"""Products of float32 matrices on a CPU, by oneDNN if that is the faster library.

torch uses MKL for them, which does not use 512-bit registers on AMD processors and has half the speed of
oneDNN there. torch includes oneDNN for bfloat16. On other processors, and for other types, devices and small
matrices, these functions are torch's own. They have no derivatives.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from pyasr.tensor.processor import agrees, has_avx512, is_from_amd

_MIN_WORK = 1 << 20  # minimum number of multiplications of a product for oneDNN
_TOLERANCE = 1e-5


@functools.cache
def prefers_onednn() -> bool:
    """Whether oneDNN is faster on this processor and computes these products correctly."""
    if not (is_from_amd() and has_avx512()):
        return False
    x = torch.linspace(-1, 1, 12).view(3, 4)
    weight = torch.linspace(-1, 1, 20).view(5, 4)
    bias = torch.linspace(0, 1, 5)
    return agrees(lambda: _by_onednn(x, weight, bias), lambda: F.linear(x, weight, bias), _TOLERANCE)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Like `torch.nn.functional.linear`, for x (..., K) and weight (N, K)."""
    return _by_onednn(x, weight, bias) if _is_for_onednn(x, weight) else F.linear(x, weight, bias)


def mm(a: Tensor, b: Tensor) -> Tensor:
    """a b for (M, K) and (K, N), which may be transposed views."""
    return affine(a, b.T) if _is_for_onednn(a, b.T) else a @ b


def add_mm(total: Tensor, a: Tensor, b: Tensor, factor: float = 1.0) -> None:
    """total += factor a b."""
    if _is_for_onednn(a, b.T):
        total.add_(affine(a, b.T), alpha=factor)
    else:
        total.addmm_(a, b, alpha=factor)


def bmm_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out = a b for (B, M, K) and (B, K, N), one product on a GPU; `out` may be part of a larger tensor."""
    if out.device.type == "cpu":
        for one, left, right in zip(out.unbind(), a.unbind(), b.unbind(), strict=True):
            one.copy_(mm(left, right))
    else:
        torch.bmm(a, b, out=out)


def add_bmm(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, see `bmm_into`."""
    if total.device.type == "cpu":
        for one, left, right in zip(total.unbind(), a.unbind(), b.unbind(), strict=True):
            add_mm(one, left, right)
    else:
        total.baddbmm_(a, b)


def minus_mm(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """x - a b."""
    return x - affine(a, b.T) if _is_for_onednn(a, b.T) else torch.addmm(x, a, b, alpha=-1)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() * len(weight) >= _MIN_WORK
        and prefers_onednn()
    )
