"""Copies of arrays within compiled functions."""

from __future__ import annotations

from pyasr.base.compiled.kernels import njit


@njit(nogil=True)
def copy_into(target, begin, source):
    """Copy the elements of `source` (N,) to `target[begin : begin + N]`. numba compiles the assignment of an
    array to a slice together with code that formats the shapes for an error message, which takes two
    seconds."""
    for i in range(len(source)):
        target[begin + i] = source[i]
