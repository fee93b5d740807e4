"""Inner loops over Gaussians and frames; notation as in `gmm`."""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit

BLOCK = 16  # frames scored together: two or four vector registers
_REORDER = {"reassoc", "contract", "nsz", "nnan"}


@njit(nogil=True, cache=True)
def select(matrix, offsets, pdfs):
    """The rows of `matrix` that belong to `pdfs`, and their offsets."""
    new_offsets = np.zeros(len(pdfs) + 1, np.int64)
    for i in range(len(pdfs)):
        new_offsets[i + 1] = new_offsets[i] + offsets[pdfs[i] + 1] - offsets[pdfs[i]]
    rows = np.empty((new_offsets[-1], matrix.shape[1]), np.float32)
    for i in range(len(pdfs)):
        first, new = offsets[pdfs[i]], new_offsets[i]
        for j in range(new_offsets[i + 1] - new):
            for k in range(matrix.shape[1]):
                rows[new + j, k] = matrix[first + j, k]
    return rows, new_offsets


@njit(nogil=True, cache=True)
def augment(feats):
    """[1, x, x²], float32 (num_frames, 1 + 2 dim)."""
    num_frames, dim = feats.shape
    data = np.empty((num_frames, 1 + 2 * dim), np.float32)
    for t in range(num_frames):
        data[t, 0] = 1.0
        for i in range(dim):
            data[t, 1 + i] = feats[t, i]
            data[t, 1 + dim + i] = feats[t, i] * feats[t, i]
    return data


@njit(inline="always")
def _exp(x):
    """exp(x) for x <= 0 in float32 to 2e-7, as 2^n times a polynomial (Cephes' coefficients), written so that
    LLVM vectorises it."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504088896) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (p * r * r + r + np.float32(1.0)) * power


@njit(nogil=True, cache=True, fastmath=_REORDER)
def log_sum_exp(exponents, offsets, result):
    """result[p, t] = log sum_{g = offsets[p]}^{offsets[p+1]-1} exp exponents[g, t]; (num_gauss, T) float32 ->
    (num_pdfs, T)."""
    num_frames = exponents.shape[1]
    total = np.empty(num_frames, np.float32)
    for p in range(len(offsets) - 1):
        best = result[p]
        for t in range(num_frames):
            best[t] = max(exponents[offsets[p], t], np.float32(-1e30))
            total[t] = 0.0
        for g in range(offsets[p] + 1, offsets[p + 1]):
            for t in range(num_frames):
                best[t] = max(best[t], exponents[g, t])
        for g in range(offsets[p], offsets[p + 1]):
            for t in range(num_frames):
                total[t] += _exp(exponents[g, t] - best[t])
        for t in range(num_frames):
            best[t] += np.log(total[t])


@njit(nogil=True, cache=True)
def augmented_blocks(feats):
    """[1, x, x²] of frames in blocks: float32 (num_blocks, 1 + 2 dim, BLOCK), zeros after the last frame."""
    num_frames, dim = feats.shape
    blocks = np.zeros(((num_frames + BLOCK - 1) // BLOCK, 1 + 2 * dim, BLOCK), np.float32)
    for t in range(num_frames):
        block = blocks[t // BLOCK]
        block[0, t % BLOCK] = 1.0
        for i in range(dim):
            block[1 + i, t % BLOCK] = feats[t, i]
            block[1 + dim + i, t % BLOCK] = feats[t, i] * feats[t, i]
    return blocks


@njit(nogil=True, cache=True, fastmath=_REORDER)
def score_block(matrix, begin, end, block, scratch, result):
    """result[t] = log sum over g = begin .. end - 1 of exp(matrix[g] . block[:, t]), for the BLOCK frames of
    a block.

    Processes two Gaussians and six dimensions at a time, so that each loaded value is used several times.
    `scratch`: float32 (end - begin + 2, BLOCK).
    """
    width = matrix.shape[1]
    for g in range(begin, end, 2):
        a, b = matrix[g], matrix[min(g + 1, end - 1)]
        sum_a, sum_b = scratch[g - begin], scratch[g - begin + 1]
        for t in range(BLOCK):
            sum_a[t], sum_b[t] = a[0], b[0]
        i = 1
        while i + 6 <= width:
            a0, a1, a2, a3, a4, a5 = a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5]
            b0, b1, b2, b3, b4, b5 = b[i], b[i + 1], b[i + 2], b[i + 3], b[i + 4], b[i + 5]
            for t in range(BLOCK):
                x0 = block[i, t]
                x1 = block[i + 1, t]
                x2 = block[i + 2, t]
                x3 = block[i + 3, t]
                x4 = block[i + 4, t]
                x5 = block[i + 5, t]
                sum_a[t] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4 + a5 * x5
                sum_b[t] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4 + b5 * x5
            i += 6
        while i < width:
            for t in range(BLOCK):
                sum_a[t] += a[i] * block[i, t]
                sum_b[t] += b[i] * block[i, t]
            i += 1
    for t in range(BLOCK):
        result[t] = max(scratch[0, t], np.float32(-1e30))
    for g in range(1, end - begin):
        for t in range(BLOCK):
            result[t] = max(result[t], scratch[g, t])
    total = scratch[end - begin]
    for t in range(BLOCK):
        total[t] = 0.0
    for g in range(end - begin):
        for t in range(BLOCK):
            total[t] += _exp(scratch[g, t] - result[t])
    for t in range(BLOCK):
        result[t] += np.log(total[t])
