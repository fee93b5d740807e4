"""Inner loops of fMLLR statistics; notation as in `fmllr` and `gmm`."""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit

_REORDER = {"reassoc", "contract", "nsz", "nnan"}


@njit(nogil=True, cache=True, fastmath=_REORDER)
def expected_parameters(feats, frames, pdfs, weights, matrix, offsets, means_invvars, inv_vars):
    """(sum_g gamma_g(t) mu_g/sigma²_g, sum_g gamma_g(t) 1/sigma²_g), float32 (T, D) each, for the frames of
    `feats` (T, D).

    Entry e assigns frame frames[e] to pdfs[e] with weight weights[e]. `matrix` and `offsets` are the
    exponent_matrix and the offsets of the `AmDiagGmm` whose posteriors divide the weight among the pdf's
    Gaussians.
    """
    num_frames, dim = feats.shape
    means, inverses = np.zeros((num_frames, dim), np.float32), np.zeros((num_frames, dim), np.float32)
    most = np.int64(0)
    for p in range(len(offsets) - 1):
        most = max(most, offsets[p + 1] - offsets[p])
    shares = np.empty(most, np.float32)
    for e in range(len(frames)):
        t, begin, end = frames[e], offsets[pdfs[e]], offsets[pdfs[e] + 1]
        _share(weights[e], feats[t], matrix, begin, end, shares)
        for g in range(begin, end):
            share = shares[g - begin]
            for d in range(dim):
                means[t, d] += share * means_invvars[g, d]
                inverses[t, d] += share * inv_vars[g, d]
    return means, inverses


@njit(inline="always")
def _share(weight, x, matrix, begin, end, shares):
    """Divide `weight` among Gaussians begin .. end - 1 by their posteriors, into `shares`."""
    dim = len(x)
    best = np.float32(-np.inf)
    for g in range(begin, end):
        row = matrix[g]
        exponent = row[0]
        for d in range(dim):
            exponent += x[d] * (row[1 + d] + x[d] * row[1 + dim + d])
        shares[g - begin] = exponent
        best = max(best, exponent)
    total = np.float32(0)
    for i in range(end - begin):
        shares[i] = np.exp(shares[i] - best)
        total += shares[i]
    for i in range(end - begin):
        shares[i] *= weight / total


@njit(nogil=True, cache=True)
def products(extended):
    """x_i x_j for j <= i: float32 (T, N) to (T, N (N + 1) / 2)."""
    num_frames, size = extended.shape
    result = np.empty((num_frames, size * (size + 1) // 2), np.float32)
    for t in range(num_frames):
        at = 0
        for i in range(size):
            for j in range(i + 1):
                result[t, at + j] = extended[t, i] * extended[t, j]
            at += i + 1
    return result
