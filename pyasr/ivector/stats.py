"""Baum-Welch statistics of utterances: how many frames each Gaussian of the UBM has, their sum, their second moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_FRAMES_PER_BLOCK = 256


@dataclass(frozen=True)
class BaumWelchStats:
    """Statistics of this rank's utterances, float64.

    counts   N, (num_utterances, num_gauss)
    sums     F, (num_utterances, num_gauss, D)
    squares  sum_t gamma_g(t) x_t x_t' of all its frames, (num_gauss, D, D)
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray


def collect(utterances: Iterable[tuple[np.ndarray, np.ndarray]], num_gauss: int, dim: int) -> BaumWelchStats:
    """Statistics of (posteriors (T, num_gauss), features (T, dim)) of each utterance; one without frames does not count."""
    rows, columns = np.tril_indices(dim)
    counts, sums, lower = [np.zeros((0, num_gauss))], [np.zeros((0, num_gauss, dim))], np.zeros((num_gauss, len(rows)))
    for posteriors, feats in utterances:
        feats = np.asarray(feats, np.float64)
        if not len(feats):
            continue
        counts.append(posteriors.sum(0)[None])
        sums.append((posteriors.T @ feats)[None])
        for begin in range(0, len(feats), _FRAMES_PER_BLOCK):
            block = slice(begin, begin + _FRAMES_PER_BLOCK)
            lower += posteriors[block].T @ (feats[block, rows] * feats[block, columns])
    squares = np.zeros((num_gauss, dim, dim))
    squares[:, rows, columns] = lower
    squares[:, columns, rows] = lower
    return BaumWelchStats(np.concatenate(counts), np.concatenate(sums), squares)
