"""Contraction of the disagreement of virtual learners by the strategies alone, without training, against the
published formulas."""

import numpy as np
import pytest
import torch
from scheme_toys import mixing_of

from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy

SIZES = (4, 8, 16, 32, 64)
NETWORK = ClusterNetwork(latency_s=1e-4, bandwidth=1e9)


def disagreements(options, size, num_rounds):
    """Remaining random disagreement after 0, 1, ..., num_rounds mixings: (largest fraction, RMS fraction)
    over directions.

    Learners begin with the rows of a random orthogonal matrix Q, so that with X what they have then, X Q' is
    the product of what was done to them. Their mean must stay.
    """
    start = np.linalg.qr(np.random.default_rng(size).standard_normal((size, size)))[0]

    def learner(comm):
        strategy, master = make_strategy(comm, options), torch.zeros(size)
        strategy.restart(master)
        master += torch.from_numpy(start[comm.rank]).float()
        strategy.begin_epoch(10 * (num_rounds + 1), 10)  # the last mixing is the mean of all
        return [master.double().numpy()] + [
            (strategy.step(master, 10), master.double().numpy())[1] for _ in range(num_rounds)
        ]

    found = []
    for x in np.swapaxes(run_simulated(size, learner, NETWORK), 0, 1):
        np.testing.assert_allclose(x.mean(0), start.mean(0), atol=1e-6)
        left = x @ start.T - 1 / size
        found.append((np.linalg.norm(left, 2), np.linalg.norm(left) / np.sqrt(size - 1)))
    return np.array(found)


def options(name, topology=None):
    """Options of mixing `name` after every minibatch, by its own topology if it has one."""
    return mixing_of(name, period_frames=10, **({"topology": topology} if topology else {}))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name, formula, cycle",
    [
        ("fixed-ring", lambda n: 1 / 3 + 2 / 3 * np.cos(2 * np.pi / n), 1),
        ("ring", lambda n: np.cos(np.pi / n), 1),
        ("static-exponential", lambda n: 1 - 2 / (1 + np.log2(n)), 1),
        ("pairs", lambda n: np.cos(2 * np.pi / n), 2),
    ],
)
def test_contraction_equals_published_formulas(name, formula, size, cycle):
    """rho of every mixing, from one cycle to the next, after the first mixing of all learners."""
    greatest = disagreements(options(name), size, 3 * cycle)[:, 0]
    if formula(size) < 1e-9:
        assert greatest[-1] < 1e-6
    else:
        np.testing.assert_allclose(
            greatest[2 * cycle :: cycle] / greatest[cycle:-1:cycle], formula(size) ** cycle, rtol=1e-4
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name, formula",
    [
        ("random-ring", lambda n: np.sqrt(1 / 3 - 2 / (3 * (n - 1)))),
        ("random-pairs", lambda n: np.sqrt(1 / 2 - 1 / (2 * (n - 1)))),
    ],
)
def test_contraction_of_random_rounds_in_mean_square(name, formula, size):
    """In the mean square over all directions: exact in the first round, on average over random draws in later
    ones, which the mean over many directions approximates."""
    root_mean_square = disagreements(options(name), size, 6)[:, 1]
    assert root_mean_square[1] == pytest.approx(formula(size), rel=1e-5)
    if size >= 16:
        assert root_mean_square[6] ** (1 / 6) == pytest.approx(formula(size), rel=0.06)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name, left_after",
    [
        ("butterfly", lambda n, k: 1.0),
        ("base2", lambda n, k: 1.0),
        ("exponential", lambda n, k: np.sin(2**k * np.pi / n) / (2**k * np.sin(np.pi / n))),
    ],
    ids=["butterfly", "base2", "exponential"],
)
def test_consensus_is_exact_after_log2_mixings(name, left_after, size):
    """Not earlier: before that, some or most of the disagreement is unchanged."""
    num = size.bit_length() - 1
    greatest = disagreements(options(name), size, num)[:, 0]
    np.testing.assert_allclose(greatest, [left_after(size, k) for k in range(num)] + [0], atol=1e-6)


@pytest.mark.parametrize("size", [4, 16, 64])
def test_hopping_ring_is_exact_after_a_cycle(size):
    assert disagreements(options("hopping-ring"), size, size - 1)[-1, 0] < 1e-6


@pytest.mark.parametrize("size", SIZES)
def test_delayed_mixings_contract_one_step_later(size):
    """Parameters sent at one mixing arrive at the next: the first changes nothing, D1D is exact after the
    second."""
    rho = 1 / 3 + 2 / 3 * np.cos(2 * np.pi / size)
    np.testing.assert_allclose(
        disagreements(options("dpsgd", "fixed-ring"), size, 4)[1:, 0], [1, rho, rho**2, rho**3], rtol=1e-4
    )
    np.testing.assert_allclose(disagreements(options("d1d"), size, 2)[:, 0], [1, 1, 0], atol=1e-6)
