"""Baum-Welch statistics of utterances: number of frames of each Gaussian of the UBM, their sum, their second
moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_FRAMES_PER_BLOCK = 256


@dataclass(frozen=True)
class BaumWelchStats:
    """Statistics of the utterances of this rank, float64.

    counts   N, (num_utterances, num_gauss)
    sums     F, (num_utterances, num_gauss, D)
    squares  sum_t gamma_g(t) x_t x_t' of all its frames, (num_gauss, D, D)
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray


def collect(
    utterances: Iterable[tuple[np.ndarray, np.ndarray]],
    num_gauss: int,
    dim: int,
    sums: np.ndarray | None = None,
) -> BaumWelchStats:
    """Statistics of (posteriors (T, num_gauss), features (T, dim)) of each utterance; utterances without
    frames do not count.

    sums  array for F, float64 (at least the number of utterances, num_gauss, dim); None: allocated in memory
    """
    if sums is None:
        utterances = list(utterances)
        sums = np.zeros((len(utterances), num_gauss, dim))
    counts = np.zeros(sums.shape[:2])
    rows, columns = np.tril_indices(dim)
    lower, number = np.zeros((num_gauss, len(rows))), 0
    for posteriors, feats in utterances:
        feats = np.asarray(feats, np.float64)
        if not len(feats):
            continue
        counts[number], sums[number] = posteriors.sum(0), posteriors.T @ feats
        number += 1
        for begin in range(0, len(feats), _FRAMES_PER_BLOCK):
            block = slice(begin, begin + _FRAMES_PER_BLOCK)
            lower += posteriors[block].T @ (feats[block, rows] * feats[block, columns])
    squares = np.zeros((num_gauss, dim, dim))
    squares[:, rows, columns] = lower
    squares[:, columns, rows] = lower
    return BaumWelchStats(counts[:number], sums[:number], squares)
