"""Rounds of mixing: dense matrices in float64, and the pairs of averaging ranks in the papers."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.topology.topologies import TOPOLOGIES, base2, matrix, rows_of

SIZES = [*range(1, 18), 32, 64]
CASES = [
    pytest.param(topology, size, id=f"{name}-{size}")
    for name, topology in TOPOLOGIES.items()
    for size in SIZES
    if not topology.power_of_two or size & (size - 1) == 0
]


def rounds_of(topology, size, seed=3):
    """Rounds of a cycle and one more, or some random draws."""
    return [topology.round(size, k, seed) for k in range(5 if topology.random else topology.cycle(size) + 1)]


@pytest.mark.parametrize("topology, size", CASES)
def test_every_round_conserves_mean_and_balances_messages(topology, size):
    for mixing in rounds_of(topology, size):
        w = matrix(mixing)
        assert w.shape == (size, size) and w.min() >= 0
        np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-15 * size)
        np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-15 * size)
        for sources, weights in mixing.parts:
            assert sorted(sources) == list(range(size)) and weights.shape == (size,)
        met = [
            set(sources[weights > 0] * size + np.flatnonzero(weights > 0))
            for sources, weights in mixing.parts
        ]
        assert sum(map(len, met)) == len(set().union(*met)), "two messages on one way"


@pytest.mark.parametrize("topology, size", CASES)
def test_rounds_repeat_after_a_cycle(topology, size):
    """Not earlier, except with few ranks."""
    if topology.random:
        first, second = (matrix(topology.round(size, k)) for k in (0, 1))
        assert size < 5 or not np.array_equal(first, second)
        return
    cycle = [matrix(topology.round(size, k)) for k in range(topology.cycle(size))]
    assert np.array_equal(matrix(topology.round(size, len(cycle))), cycle[0])
    if topology.name not in ("pairs", "base2"):
        assert len({w.tobytes() for w in cycle}) == len(cycle)


def test_rounds_pair_partners():
    """Each rank's mixed number is half its own plus half its partner's."""
    numbers = np.arange(8)
    expected = {
        ("butterfly", 1): [2, 3, 0, 1, 6, 7, 4, 5],
        ("ring", 5): [7, 0, 1, 2, 3, 4, 5, 6],
        ("hopping-ring", 2): [5, 6, 7, 0, 1, 2, 3, 4],
        ("hopping-ring", 7): [7, 0, 1, 2, 3, 4, 5, 6],
        ("exponential", 2): [4, 5, 6, 7, 0, 1, 2, 3],
        ("pairs", 0): [1, 0, 3, 2, 5, 4, 7, 6],
        ("pairs", 1): [7, 2, 1, 4, 3, 6, 5, 0],
    }
    for (name, k), sources in expected.items():
        np.testing.assert_array_equal(
            matrix(TOPOLOGIES[name].round(8, k)) @ numbers, (numbers + sources) / 2, err_msg=name
        )
    np.testing.assert_allclose(matrix(TOPOLOGIES["fixed-ring"].round(8, 4))[0, [7, 0, 1]], 1 / 3)
    np.testing.assert_allclose(matrix(TOPOLOGIES["static-exponential"].round(8, 4))[0, [7, 6, 4, 0]], 1 / 4)


def test_odd_rank_idles_in_turn():
    for name in ("pairs", "random-pairs"):
        idle = [np.flatnonzero(np.diag(matrix(TOPOLOGIES[name].round(7, k))) == 1) for k in range(200)]
        assert {len(ranks) for ranks in idle} == {1} and {
            int(ranks[0]) for ranks in idle[: 7 if name == "pairs" else 200]
        } == set(range(7))


def test_rotating_rounds_are_shifted_first_round():
    for size in range(2, 18):
        first, pairs = matrix(TOPOLOGIES["pairs"].round(size, 0)), TOPOLOGIES["pairs"]
        for k in range(2 * size):
            assert np.array_equal(matrix(pairs.round(size, k)), np.roll(first, (k, k), axis=(0, 1)))


@pytest.mark.parametrize("size", [*range(1, 34), 64, 100])
def test_base2_is_exact_with_one_message_per_round(size):
    """Within p + 1 rounds for each 1 in the binary form of P, which has p + 1 digits."""
    rounds, product = base2(size), np.eye(size)
    for mixing in rounds:
        assert len(mixing.parts) <= 1
        product = matrix(mixing) @ product
    np.testing.assert_allclose(product, 1 / size, atol=1e-15)
    assert len(rounds) <= max(size.bit_count() * size.bit_length(), 1)
    if size & (size - 1) == 0:
        assert len(rounds) == max(size.bit_length() - 1, 1)


def test_butterfly_requires_power_of_two():
    with pytest.raises(
        UserError, match=r"butterfly mixing takes 2, 4, 8, ... ranks, not 6; base2 supports any number"
    ):
        TOPOLOGIES["butterfly"].round(6, 0)


@pytest.mark.parametrize("name", ["random-ring", "random-pairs"])
def test_ranks_draw_same_rounds(name):
    """Without messages. Other rounds and other seeds give other pairs."""
    topology = TOPOLOGIES[name]
    drawn = run_threads(
        5, lambda comm: [matrix(topology.round(comm.size, k, seed)) for seed in (0, 1) for k in range(20)]
    )
    for others in drawn[1:]:
        np.testing.assert_array_equal(others, drawn[0])
    assert len({w.tobytes() for w in drawn[0]}) > 5


@pytest.mark.parametrize("name", ["random-ring", "random-pairs"])
def test_random_orders_are_uniform(name):
    """Every rank meets every other equally often: E[W] over 4000 draws, within 5 standard errors."""
    num, size = 4000, 7
    frequencies = np.mean([matrix(TOPOLOGIES[name].round(size, k)) > 0 for k in range(num)], axis=0)
    apart = frequencies[~np.eye(size, dtype=bool)]
    expected = 2 / (size - 1) if name == "random-ring" else 1 / size
    assert np.abs(apart - expected).max() < 5 * np.sqrt(expected * (1 - expected) / num)


def test_selected_rows_of_mixing_matrix():
    mixing = TOPOLOGIES["random-ring"].round(9, 4)
    np.testing.assert_array_equal(rows_of(mixing, np.array([7, 2])), matrix(mixing)[[7, 2]])
