r"""Mixtures of language models, p(w | h) = sum_i lambda_i p_i(w | h), with the weights that make a held-out
text most probable.

For two models, the second with weight v, and r = p_2 / p_1 of the words of the text, the derivative of the
log-probability of the text with respect to v,

    sum of (r - 1) / (1 + v (r - 1)),                                                  (1)

falls with v, and bisection finds its zero. For any number of models, each iteration of the EM algorithm
raises the probability:

    lambda_i  <-  mean over the words of  lambda_i p_i / sum_j lambda_j p_j.           (2)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_STEPS = 30
_MAX_LOG_RATIO = 50.0  # limit of |ln r|
_MAX_ITERATIONS = 1000


def mix(first: np.ndarray, second: np.ndarray, weight: float) -> np.ndarray:
    """ln of the mixture, from ln p_1 and ln p_2 of the same words; `weight` is that of the second model."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(first + np.log1p(-weight), second + np.log(weight))


def best_weight(first: np.ndarray, second: np.ndarray) -> float:
    """v from ln p_1 and ln p_2 of the words of a text, to four decimals; 0 or 1 if one of the models does not
    help."""
    excess = np.expm1(np.clip(second - first, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if (excess / (1 + middle * excess)).sum() > 0:
            low = middle
        else:
            high = middle
    return round(middle, 4)


def em_weights(scores: np.ndarray, tolerance: float) -> Iterator[tuple[np.ndarray, float]]:
    """Yields the weights of each iteration of (2) and the mean ln p of the words under them, from equal
    weights to the result.

    scores     ln p_i of the words, float64 (num_models, num_words); -inf for 0, but not under all models
    tolerance  iterations end when no weight changes by more
    """
    greatest = scores.max(0)
    relative = np.exp(scores - greatest)
    weights = np.full(len(scores), 1 / len(scores))
    for _ in range(_MAX_ITERATIONS):
        parts = weights[:, None] * relative
        total = parts.sum(0)
        yield weights, float((np.log(total) + greatest).mean())
        before, weights = weights, (parts / total).mean(1)
        if abs(weights - before).max() <= tolerance:
            break
    yield weights, float((np.log(weights @ relative) + greatest).mean())
