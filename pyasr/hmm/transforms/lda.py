r"""Linear discriminant analysis of spliced frames with pdfs as classes (Kaldi's acc-lda and est-lda).

    total covariance    T = sum_t x_t x_t^T / N - m m^T
    between classes     B = sum_c n_c m_c m_c^T / N - m m^T,          within them  W = T - B = L L^T
    L^-1 B L^-T = U diag(s) U^T,  s descending;        the transform is the first rows of  U^T L^-1

The covariance within classes becomes the identity matrix, and the retained dimensions separate the classes
best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError

_GRAIN = 1024.0


@dataclass
class LdaStats:
    """Sums over frames, float64, which can be added over ranks.

    counts (num_classes), sums (num_classes, D) of the classes' frames, squares (D, D) of all frames
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray

    @classmethod
    def zeros(cls, num_classes: int, dim: int) -> LdaStats:
        return cls(np.zeros(num_classes), np.zeros((num_classes, dim)), np.zeros((dim, dim)))

    def accumulate(self, features: np.ndarray, classes: np.ndarray) -> None:
        """Add frames (T, D) of `classes` (T); frames of class -1 are skipped."""
        kept = classes >= 0
        features, classes = features[kept], classes[kept]
        self.squares += features.T @ features
        _add_by_class(features, classes, self.counts, self.sums)

    def allreduce(self, comm) -> LdaStats:
        """Replace the sums by those over all ranks, rounded so that the order of summation has no effect.
        Returns the object itself."""
        for array in (self.counts, self.sums, self.squares):
            comm.allreduce(array)
            array[...] = np.round(array * _GRAIN) / _GRAIN
        return self


@njit(nogil=True, cache=True)
def _add_by_class(features, classes, counts, sums):
    for t in range(len(classes)):
        counts[classes[t]] += 1.0
        row = sums[classes[t]]
        for d in range(features.shape[1]):
            row[d] += features[t, d]


def scatter(stats: LdaStats) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(within-class covariance, between-class covariance, mean of all frames)."""
    total = stats.counts.sum()
    mean = stats.sums.sum(0) / total
    present = stats.counts > 0
    means = stats.sums[present] / stats.counts[present, None]
    between = (means * stats.counts[present, None]).T @ means / total - np.outer(mean, mean)
    return stats.squares / total - np.outer(mean, mean) - between, between, mean


def estimate_lda(stats: LdaStats, dim: int, remove_offset: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(transform (dim, D), its `dim` ratios of between- to within-class variance, descending), float64.

    remove_offset  return the affine form (dim, D + 1) that makes the mean of all frames zero

    Raises UserError if `dim` is too large or there are too few frames.
    """
    num_frames, full = stats.counts.sum(), len(stats.squares)
    if not 0 < dim <= full:
        raise UserError(
            f"LDA cannot map features with {full} columns to {dim} dimensions; lower --dim or splice more "
            "frames"
        )
    if num_frames <= full:
        raise UserError(
            f"{num_frames:.0f} frames of speech are too few for LDA of {full} dimensions; align more data"
        )
    within, between, mean = scatter(stats)
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(within))
    except np.linalg.LinAlgError:
        found = (
            "the covariance within classes is singular: some feature columns are constant or copies of others"
        )
        raise UserError(f"LDA: {found}; give other features") from None
    ratios, vectors = np.linalg.eigh(whiten @ between @ whiten.T)
    best = np.argsort(ratios)[::-1][:dim]
    transform = _signed(vectors[:, best].T @ whiten)
    if remove_offset:
        transform = np.hstack([transform, -(transform @ mean)[:, None]])
    return transform, ratios[best]


def _signed(rows: np.ndarray) -> np.ndarray:
    """Fix the signs of eigenvectors: the largest entry of each row becomes positive."""
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(1)]
    return rows * np.where(largest < 0, -1.0, 1.0)[:, None]
