r"""Cepstral mean and variance normalisation per speaker, with Kaldi's statistics.

Statistics of D-dimensional features are a float64 matrix of 2 rows and D + 1 columns:

    row 0:  sum_t x_t[0..D-1],  number of frames
    row 1:  sum_t x_t[0..D-1]^2,  0
"""

from __future__ import annotations

import numpy as np

VARIANCE_FLOOR = 1e-20


def cmvn_stats(features: np.ndarray) -> np.ndarray:
    """Statistics (2, D + 1) of one utterance (T, D)."""
    features = features.astype(np.float64)
    stats = np.zeros((2, features.shape[1] + 1))
    stats[0, :-1] = features.sum(0)
    stats[1, :-1] = np.square(features).sum(0)
    stats[0, -1] = len(features)
    return stats


def normaliser(stats: np.ndarray, norm_vars: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """(mean, inverse standard deviation or None), float32 (D,), such that (x - mean) * inverse is normalised."""
    count = max(stats[0, -1], 1.0)
    mean = stats[0, :-1] / count
    if not norm_vars:
        return mean.astype(np.float32), None
    variance = np.maximum(stats[1, :-1] / count - mean**2, VARIANCE_FLOOR)
    return mean.astype(np.float32), (variance**-0.5).astype(np.float32)


def apply_cmvn(features: np.ndarray, mean: np.ndarray, inverse_std: np.ndarray | None) -> np.ndarray:
    """Normalised features, float32 (T, D)."""
    centred = features - mean
    return centred if inverse_std is None else centred * inverse_std
