"""Confidence intervals of word error rates by resampling.

Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", ICASSP 2004: the
test set is resampled with replacement, by utterance or by speaker. The WER of a sample is sum of errors / sum
of words. The interval contains the middle 95 % of the samples. Resampling by speaker accounts for the
correlation of the errors of a speaker; with fewer than about ten speakers, that interval is itself uncertain.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.cli.seeds import generator

NUM_DRAWS = 10_000
_BLOCK = 500


def wer_interval(
    errors: np.ndarray, words: np.ndarray, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """(low, high) of the WER in per cent. errors, words: (num_units,), by utterance or speaker."""
    rates = _drawn_ratios(np.asarray(errors, float), np.asarray(words, float), seed)
    return _middle(100 * rates, level)


def difference_interval(
    errors_a: np.ndarray, errors_b: np.ndarray, words: np.ndarray, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """(low, high) of WER(b) - WER(a) in per cent absolute, from the same samples; without 0, the difference
    is significant."""
    rates = _drawn_ratios(
        np.asarray(errors_b, float) - np.asarray(errors_a, float), np.asarray(words, float), seed
    )
    return _middle(100 * rates, level)


def by_group(values: np.ndarray, groups: list[str]) -> np.ndarray:
    """Sums of `values` over equal `groups`, in C order of the groups."""
    _, index = np.unique(groups, return_inverse=True)
    return np.bincount(index, weights=values)


def _drawn_ratios(numerators: np.ndarray, denominators: np.ndarray, seed: int) -> np.ndarray:
    rng, num, ratios = generator(seed, "bootstrap"), len(numerators), []
    for _ in range(0, NUM_DRAWS, _BLOCK):
        drawn = rng.integers(0, num, (_BLOCK, num))
        ratios.append(numerators[drawn].sum(axis=1) / np.maximum(denominators[drawn].sum(axis=1), 1))
    return np.concatenate(ratios)


def _middle(rates: np.ndarray, level: float) -> tuple[float, float]:
    low, high = np.quantile(rates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
