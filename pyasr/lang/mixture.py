r"""Two language models as one: p(w | h) = (1 - v) p_1(w | h) + v p_2(w | h), v being the weight of the second.

A mean of probabilities is a probability, where a mean of logarithms has to be normalised anew. The v under which a text is most probable
that neither was estimated from: with r = p_2 / p_1 of its words, the derivative of the text's log-probability by v,

    sum of (r - 1) / (1 + v (r - 1)),                                                                                                (1)

falls with v, so bisection finds its zero.
"""

from __future__ import annotations

import numpy as np

_STEPS = 30
_MOST = 50.0  # the greatest ln r that is told from greater ones


def mix(first: np.ndarray, second: np.ndarray, weight: float) -> np.ndarray:
    """ln of the mixture, from ln p_1 and ln p_2 of the same words; `weight` is the second's."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(first + np.log1p(-weight), second + np.log(weight))


def best_weight(first: np.ndarray, second: np.ndarray) -> float:
    """v from ln p_1 and ln p_2 of a text's words, to four decimals; 0 or 1 where one of the models is not wanted."""
    excess = np.expm1(np.clip(second - first, -_MOST, _MOST))
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if (excess / (1 + middle * excess)).sum() > 0:
            low = middle
        else:
            high = middle
    return round(middle, 4)
