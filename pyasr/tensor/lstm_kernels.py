r"""The derivatives of one frame of LSTMs on a CPU, where torch takes about twenty passes over memory;
equations in `pyasr.nn.layers.lstm`.

All arrays are float32: `a` (B, N, 4 H), the others (B, N, H), peepholes (B, 3, H), or (B, 0, H) without;
clips of 0 are disabled. Contiguous arrays take much less time.

exp(x) is 2^k (1 + sum_{j=1..7} (f ln 2)^j / j!) with x / ln 2 = k + f, |f| <= 1/2: relative error below 1e-8
plus rounding. The sigmoid is 1 / (1 + exp(-x)), tanh(x) is 2 sigma(2 x) - 1: absolute errors up to about
1e-7.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.compiled.kernels import njit

_LOG2E = np.float32(1 / math.log(2))
_C1, _C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(math.log(2) ** j / math.factorial(j)) for j in range(1, 8))
_ONE, _TWO, _LIMIT = np.float32(1), np.float32(2), np.float32(126)
_ROUNDER = np.float32(3 << 22)  # a float32 near it has no fractional bits
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


@njit(inline="always", error_model="numpy")
def _exp(x):
    scaled = x * _LOG2E
    scaled = _LIMIT if scaled > _LIMIT else scaled
    scaled = -_LIMIT if scaled < -_LIMIT else scaled
    k = (scaled + _ROUNDER) - _ROUNDER
    f = scaled - k
    series = _ONE + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * (_C6 + f * _C7))))))
    return series * np.int32((np.int32(k) + _BIAS) << _MANTISSA).view(np.float32)


@njit(inline="always", error_model="numpy")
def _sigma(x):
    return _ONE / (_ONE + _exp(-x))


@njit(inline="always", error_model="numpy")
def _tanh(x):
    return _TWO * _sigma(_TWO * x) - _ONE


@njit(inline="always", error_model="numpy")
def _bound(x, greatest):
    """Scale x to a norm of at most `greatest`; the square has the range of float64."""
    square = 0.0
    for h in range(len(x)):
        square += np.float64(x[h]) * np.float64(x[h])
    if square > greatest * greatest:
        factor = np.float32(greatest / math.sqrt(square))
        for h in range(len(x)):
            x[h] *= factor


@njit(nogil=True, cache=True, error_model="numpy")
def backwards(dm, dc, a, before, c, da, peepholes, clip, gradient_clip):
    """Fill `da`, and change `dc` from the derivative by c_t to that by c_{t-d}. Separate loops over a row can
    be vectorised."""
    num_layers, num_sequences, size = before.shape
    sees_cells, limit = peepholes.shape[1] > 0, np.float32(clip)
    for number in range(num_layers * num_sequences):
        b, n = number // num_sequences, number % num_sequences
        row, slope, cell, new, by_m, by_c = a[b, n], da[b, n], before[b, n], c[b, n], dm[b, n], dc[b, n]
        for h in range(size):
            slope[h] = _tanh(new[h])
        for h in range(size):
            o = row[3 * size + h]
            slope[3 * size + h] = by_m[h] * slope[h] * o * (_ONE - o)
        for h in range(size):
            by_c[h] += by_m[h] * row[3 * size + h] * (_ONE - slope[h] * slope[h])
        if sees_cells:
            for h in range(size):
                by_c[h] += slope[3 * size + h] * peepholes[b, 2, h]
        if gradient_clip > 0:
            _bound(by_c, gradient_clip)
        if limit > 0:
            for h in range(size):
                by_c[h] = by_c[h] if abs(new[h]) < limit else np.float32(0)
        for h in range(size):
            slope[h] = by_c[h] * row[2 * size + h] * row[h] * (_ONE - row[h])
        for h in range(size):
            slope[size + h] = by_c[h] * cell[h] * row[size + h] * (_ONE - row[size + h])
        for h in range(size):
            slope[2 * size + h] = by_c[h] * row[h] * (_ONE - row[2 * size + h] * row[2 * size + h])
        for h in range(size):
            by_c[h] *= row[size + h]
        if sees_cells:
            for h in range(size):
                by_c[h] += slope[h] * peepholes[b, 0, h] + slope[size + h] * peepholes[b, 1, h]
