"""Instruction sets that the numerical libraries may use on this processor, and tests of fast paths.

Two environment variables limit torch and oneDNN to fewer instruction sets than the processor has:
ATEN_CPU_CAPABILITY (avx2, default) and ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, ...; oneDNN also reads its old
name, DNNL_MAX_CPU_ISA). The functions below respect them, so that another processor can be emulated. Without
/proc/cpuinfo, the vendor of the processor is unknown and is not taken to be AMD.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import torch
from torch import Tensor

_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the first one set takes effect
_WITHOUT_AVX512 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"}
_WITHOUT_BFLOAT16_PRODUCTS = _WITHOUT_AVX512 | {"AVX512_CORE", "AVX512_CORE_VNNI"}


def has_avx512() -> bool:
    """Whether torch and oneDNN use 512-bit registers."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and _onednn_limit() not in _WITHOUT_AVX512


def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 with native instructions, which is faster than float32."""
    instructions = torch.cpu.get_capabilities()
    is_native = instructions.get("avx512_bf16", False) or instructions.get("amx_bf16", False)
    return (
        is_native
        and torch.backends.mkldnn.is_available()
        and has_avx512()
        and _onednn_limit() not in _WITHOUT_BFLOAT16_PRODUCTS
    )


@functools.cache
def is_from_amd() -> bool:
    """Whether this is an AMD processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return "AuthenticAMD" in f.read(1 << 16)
    except OSError:
        return False  # harmless: not Linux, see above


def agrees(fast: Callable[[], Tensor], plain: Callable[[], Tensor], tolerance: float) -> bool:
    """Whether a fast path exists and agrees with the plain one, to a relative and absolute `tolerance`. A
    test on a small example shows whether the path can be used on this processor, with this build of torch."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        return torch.allclose(fast().double(), plain().double(), rtol=tolerance, atol=tolerance)
    except (AttributeError, TypeError, RuntimeError):
        # harmless: the build or the processor does not support the fast path; the plain path does the same
        return False


def _onednn_limit() -> str:
    """The maximum instruction set of oneDNN; empty: no limit."""
    return next((os.environ[name].upper() for name in _LIMITS if os.environ.get(name)), "")
