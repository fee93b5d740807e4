"""CTC of tiny cases by enumeration of all paths in float64."""

from __future__ import annotations

import itertools

import numpy as np


def collapse(path) -> tuple[int, ...]:
    """The labels of a path: equal neighbours joined, blanks (0) dropped."""
    return tuple(int(label) for label, _ in itertools.groupby(path) if label)


def random_log_posteriors(seed: int, num_frames: int, num_units: int) -> np.ndarray:
    """float32 (num_frames, num_units), rows that sum to one in the probabilities."""
    logits = 2 * np.random.default_rng(seed).standard_normal((num_frames, num_units))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


def all_sums(log_posteriors: np.ndarray) -> dict[tuple[int, ...], float]:
    """{labels: ln of the sum over all their alignments}."""
    return _by_labels(log_posteriors, np.logaddexp)


def all_best(log_posteriors: np.ndarray) -> dict[tuple[int, ...], float]:
    """{labels: ln of their best alignment}."""
    return _by_labels(log_posteriors, max)


def _by_labels(log_posteriors: np.ndarray, join) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {}
    rows = log_posteriors.astype(np.float64).tolist()
    for path in itertools.product(range(log_posteriors.shape[1]), repeat=len(rows)):
        labels, score = collapse(path), sum(row[label] for row, label in zip(rows, path))
        found[labels] = float(join(found[labels], score)) if labels in found else score
    return found
