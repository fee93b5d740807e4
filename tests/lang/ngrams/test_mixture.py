"""Mixtures of two models against a search over all weights."""

import numpy as np
import pytest

from pyasr.lang.ngrams.mixture import best_weight, mix


def test_best_weight_equals_grid_search():
    rng = np.random.default_rng(0)
    num = np.arange(2000)
    for share in (0.2, 0.5, 0.9):
        models = np.stack([rng.dirichlet(np.ones(6), len(num)) for _ in range(2)])
        drawn_from = models[(rng.random(len(num)) < share).astype(int), num]
        words = (drawn_from.cumsum(1) < rng.random((len(num), 1))).sum(1).clip(max=5)
        one, other = np.log(models[:, num, words])
        grid = np.linspace(0, 1, 1001)
        best = grid[np.argmax([np.log((1 - v) * np.exp(one) + v * np.exp(other)).sum() for v in grid])]
        assert best_weight(one, other) == pytest.approx(best, abs=1e-3) == pytest.approx(share, abs=0.1)


def test_weights_at_bounds():
    better, worse = np.log([0.5, 0.25]), np.log([0.4, 0.2])
    assert (best_weight(better, worse), best_weight(worse, better)) == (0.0, 1.0)
    assert np.array_equal(mix(better, worse, 0.0), better) and np.array_equal(mix(better, worse, 1.0), worse)
    assert best_weight(np.array([-np.inf, -1.0]), np.array([-1.0, -5.0])) == pytest.approx(0.5, abs=0.02)
