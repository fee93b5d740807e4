"""Speed of consensus, against closed formulas, published tables, dense products and random vectors."""

from functools import cache

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.parallel.topology.agreement import disagreement_of, models_sent
from pyasr.parallel.topology.topologies import TOPOLOGIES, base2, matrix

KNOWN = [name for name, topology in TOPOLOGIES.items() if not topology.random]
RANDOM = [name for name, topology in TOPOLOGIES.items() if topology.random]


@cache
def disagreement(name, size):
    return disagreement_of(TOPOLOGIES[name], size)


def remaining_disagreement(topology, size: int, num_rounds: int, seed: int = 0) -> float:
    """D(num_rounds) by its definition; random rounds are drawn once."""
    product = np.eye(size)
    for k in range(num_rounds):
        product = matrix(topology.round(size, k, seed)) @ product
    norm = float(np.linalg.norm(product - 1 / size, 2))
    return norm if norm > 1e-12 else 0.0


def takes(name, size):
    return not TOPOLOGIES[name].power_of_two or size & (size - 1) == 0


TABLE = {  # columns: fixed ring, directed ring, random ring, random pairs, static exponential
    4: (0.333, 0.707, 0.333, 0.577, 0.333),
    8: (0.805, 0.924, 0.488, 0.655, 0.500),
    16: (0.949, 0.981, 0.537, 0.683, 0.600),
    32: (0.987, 0.995, 0.558, 0.696, 0.667),
    64: (0.997, 0.999, 0.568, 0.701, 0.714),
}


@pytest.mark.parametrize("size", TABLE)
def test_table_equals_literature(size):
    names = ("fixed-ring", "ring", "random-ring", "random-pairs", "static-exponential")
    assert tuple(round(disagreement(name, size).contraction, 3) for name in names) == TABLE[size]
    for name in ("butterfly", "exponential", "base2"):
        assert (disagreement(name, size).contraction, disagreement(name, size).exact_after) == (
            0,
            size.bit_length() - 1,
        )


@pytest.mark.parametrize(
    "name, formula, sizes",
    [
        ("fixed-ring", lambda n: abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi / n)), range(2, 65)),
        ("ring", lambda n: np.cos(np.pi / n), range(2, 65)),
        ("random-ring", lambda n: np.sqrt(1 / 3 - 2 / (3 * (n - 1))), range(3, 65)),
        ("random-pairs", lambda n: np.sqrt(1 / 2 - (n % 2 == 0) / (2 * (n - 1))), range(2, 65)),
        ("pairs", lambda n: np.cos(2 * np.pi / n), range(4, 65, 2)),
        # Ying et al., Proposition 1
        ("static-exponential", lambda n: 1 - 2 / (1 + np.ceil(np.log2(n))), range(2, 65, 2)),
        ("complete", lambda n: 0, range(2, 65)),
    ],
)
def test_contractions_equal_formulas(name, formula, sizes):
    for size in sizes:
        assert disagreement(name, size).contraction == pytest.approx(formula(size), abs=1e-7), size


def test_hopping_ring_with_odd_number_of_ranks():
    """The product over s = 1, ..., m - 1 of (1 + w^s) / 2 is 2^(1 - m) for a root of unity w of odd order m:
    the smallest factor of P matters."""
    for size, factor in ((5, 5), (9, 3), (15, 3), (25, 5), (1023, 3)):
        expected = 2 ** ((1 - factor) * size / factor / (size - 1))
        assert disagreement("hopping-ring", size).contraction == pytest.approx(expected, rel=1e-9)


def test_remaining_disagreement_after_log2_mixings():
    """Su and Chen's three topologies."""
    for size, ring, hopping in ((16, 0.93, 0.53), (32, 0.976, 0.76)):
        num = size.bit_length() - 1
        assert remaining_disagreement(TOPOLOGIES["ring"], size, num) == pytest.approx(ring, abs=0.005)
        assert remaining_disagreement(TOPOLOGIES["hopping-ring"], size, num) == pytest.approx(
            hopping, abs=0.005
        )
        assert remaining_disagreement(TOPOLOGIES["butterfly"], size, num - 1) == pytest.approx(1)
        assert remaining_disagreement(TOPOLOGIES["butterfly"], size, num) == 0


def test_topologies_with_exact_consensus():
    exact = {
        name: {
            size: n
            for size in range(2, 66)
            if takes(name, size) and (n := disagreement(name, size).exact_after)
        }
        for name in TOPOLOGIES
    }
    powers = [2, 4, 8, 16, 32, 64]
    assert exact["complete"] == dict.fromkeys(range(2, 66), 1)
    assert exact["butterfly"] == exact["exponential"] == {size: size.bit_length() - 1 for size in powers}
    assert exact["hopping-ring"] == {size: size // 2 for size in powers}
    assert exact["base2"] == {size: len(base2(size)) for size in range(2, 66)}
    small = ("ring", "fixed-ring", "random-ring", "pairs", "random-pairs", "static-exponential")
    assert [exact[name] for name in small] == [{2: 1}, {3: 1}, {3: 1}, {2: 1, 4: 2}, {2: 1}, {2: 1, 3: 1}]
    assert {disagreement(name, 1).exact_after for name in TOPOLOGIES} == {0}


@pytest.mark.parametrize("name", KNOWN)
def test_numbers_of_mixings_equal_dense_products(name):
    for size in (2, 3, 5, 6, 8, 9, 12):
        for share in (0.45, 0.01) if takes(name, size) else ():
            num = disagreement(name, size).mixings_until(share)
            assert (
                remaining_disagreement(TOPOLOGIES[name], size, num)
                < share
                <= remaining_disagreement(TOPOLOGIES[name], size, num - 1)
            )


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("size", [4, 7, 8, 16, 31, 64])
def test_random_vectors_contract_at_same_rate(name, size):
    """Over many rounds. Topologies with exact consensus leave rounding errors."""
    if not takes(name, size):
        return
    topology, x = TOPOLOGIES[name], np.random.default_rng(size).standard_normal(size)
    mean, expected = x.mean(), disagreement(name, size)
    num = expected.exact_after or topology.cycle(size) * -(-200 // topology.cycle(size))
    logs, rounds = [0.0], [matrix(topology.round(size, k)) for k in range(topology.cycle(size))]
    for k in range(2 * num):
        x = rounds[k % len(rounds)] @ x
        assert x.mean() == pytest.approx(mean, abs=1e-13)
        if expected.exact_after is None:
            norm = np.linalg.norm(x - x.mean())
            x, logs = (x - x.mean()) / norm + mean, [*logs, logs[-1] + np.log(norm)]
    if expected.exact_after is not None:
        np.testing.assert_allclose(x, mean, atol=1e-14)
    else:
        assert np.exp((logs[-1] - logs[num]) / num) == pytest.approx(expected.contraction, rel=0.003)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 16])
def test_random_rounds_contract_in_mean_square(name, size):
    """After one and two rounds, for any vector: the mean of |W x|^2 over draws is within 5 standard errors of
    the squared contraction."""
    topology, rng = TOPOLOGIES[name], np.random.default_rng(size)
    start = rng.standard_normal(size)
    start -= start.mean()
    for num_rounds, num_draws in ((1, 2000), (2, 1000)):
        squares = []
        for draw in range(num_draws):
            x = start
            for k in range(num_rounds):
                x = matrix(topology.round(size, k, seed=draw)) @ x
            squares.append(x @ x / (start @ start))
        error = np.std(squares) / np.sqrt(num_draws)
        assert (
            abs(np.mean(squares) - disagreement(name, size).contraction ** (2 * num_rounds))
            <= 5 * error + 1e-12
        )


@pytest.mark.parametrize("name", RANDOM)
def test_numbers_of_random_mixings(name):
    random = disagreement(name, 16)
    num = random.mixings_until(0.01)
    assert random.contraction**num < 0.01 <= random.contraction ** (num - 1)
    left = [remaining_disagreement(TOPOLOGIES[name], 16, num, seed) for seed in range(20)]
    assert 0.001 < np.sqrt(np.mean(np.square(left))) < 0.01 * np.sqrt(15), (
        "the norm is at most that of 15 directions"
    )


def test_models_sent_per_mixing():
    sent = {name: [models_sent(TOPOLOGIES[name], size) for size in (1, 2, 8)] for name in TOPOLOGIES}
    assert sent.pop("complete") == [0, 1, 1.75] and sent.pop("static-exponential") == [0, 1, 3]
    assert sent.pop("fixed-ring") == sent.pop("random-ring") == [0, 1, 2], "two ranks have one neighbour"
    assert set(map(tuple, sent.values())) == {(0, 1, 1)} and models_sent(TOPOLOGIES["base2"], 7) == 1


def test_unsupported_numbers_of_ranks_are_refused():
    with pytest.raises(UserError, match="not 6; base2"):
        disagreement_of(TOPOLOGIES["butterfly"], 6)
