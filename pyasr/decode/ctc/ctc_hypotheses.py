"""Hypotheses of a CTC network's output without a graph: words with their costs, and greedy search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.lang.lang_dirs.subwords import words_of

# maximum deviation of a frame's sum of posteriors from 1; compressed tables deviate by a few hundredths
_MAX_DEVIATION = 0.1


@dataclass(frozen=True)
class CtcHypothesis:
    """Words, the units that spell them, and costs (negated natural logarithms of probabilities).

    ctc_cost  cost of the words given the frames
    lm_cost   language model cost of the words and the end of the sentence; 0 without a language model
    """

    words: tuple[str, ...]
    units: tuple[int, ...]
    ctc_cost: float
    lm_cost: float = 0.0

    def score(self, lm_weight: float, word_bonus: float) -> float:
        """Ranking score: ln p(words | frames) + lm_weight * ln p(words) + word_bonus * number of words."""
        return -self.ctc_cost - lm_weight * self.lm_cost + word_bonus * len(self.words)


def checked(log_posteriors: np.ndarray, num_units: int, name: str) -> np.ndarray:
    """The log posteriors as float32 (T, num_units). Raises UserError, naming the utterance, for another shape
    or values not finite."""
    log_posteriors = np.ascontiguousarray(log_posteriors, np.float32)
    if log_posteriors.ndim != 2 or log_posteriors.shape[1] != num_units:
        found = f"log posteriors of shape {log_posteriors.shape}, expected (frames, {num_units})"
        raise UserError(f"{name}: {found}; decode with the units that the network was trained with")
    if not np.isfinite(log_posteriors).all():
        frame, unit = np.argwhere(~np.isfinite(log_posteriors))[0]
        raise UserError(
            f"{name}: the log posterior of unit {unit} at frame {frame} is {log_posteriors[frame, unit]}; "
            "check the features and the model"
        )
    return log_posteriors


def checked_posteriors(log_posteriors: np.ndarray, num_units: int, name: str) -> np.ndarray:
    """Like `checked`; also raises UserError if the probabilities of a frame do not add up to 1."""
    log_posteriors = checked(log_posteriors, num_units, name)
    with np.errstate(over="ignore"):
        sums = np.exp(log_posteriors, dtype=np.float64).sum(1)
    off = np.flatnonzero(~(np.abs(sums - 1) <= _MAX_DEVIATION))
    if len(off):
        raise UserError(
            f"{name}: the probabilities of the units at frame {off[0]} add up to {sums[off[0]]:.3g}, not to "
            "1; give natural logarithms of posteriors, as a log-softmax computes them"
        )
    return log_posteriors


def greedy(log_posteriors: np.ndarray, units: Sequence[str], name: str = "the utterance") -> CtcHypothesis:
    """The labels of the most likely path: the best unit of each frame, with repetitions merged and blanks (0)
    removed.

    log_posteriors  (T, num_units), natural logarithms

    `ctc_cost` is the cost of this single path. Raises UserError as `checked_posteriors` does.
    """
    log_posteriors = checked_posteriors(log_posteriors, len(units), name)
    best = log_posteriors.argmax(1)
    change = np.ones(len(best), bool)
    change[1:] = best[1:] != best[:-1]
    labels = best[change & (best != 0)].tolist()
    cost = -float(log_posteriors.max(1).sum(dtype=np.float64)) if len(best) else 0.0
    return CtcHypothesis(tuple(words_of(units[label] for label in labels)), tuple(labels), cost)
