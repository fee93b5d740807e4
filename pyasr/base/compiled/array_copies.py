"""Copies of arrays within compiled functions."""

from __future__ import annotations

from pyasr.base.compiled.kernels import njit


@njit(nogil=True)
def copy_into(target, begin, source):
    """Copy the elements of `source` (N,) to `target[begin : begin + N]`. The assignment of an array to a
    slice or a row takes two seconds more to compile: numba adds code that formats both shapes for an error
    message."""
    for i in range(len(source)):
        target[begin + i] = source[i]
