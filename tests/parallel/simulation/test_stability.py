"""Largest stable product of learning rate and curvature: on a parabola, against the eigenvalues of the
schemes' effect on the differences of learners."""

import pytest
import torch
from scheme_toys import mixing_of

from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options

NUM_RANKS, NUM_STEPS, DIM = 8, 100, 3
NETWORK = ClusterNetwork(latency_s=1e-4, bandwidth=1e9)


def end(options, rate):
    """Largest parameter of all learners before the last consensus. All start at 1, with differences of 0.1,
    on F = x^2 / 2."""

    def learner(comm):
        strategy, master = make_strategy(comm, options), torch.ones(DIM)
        strategy.restart(master)
        strategy.begin_epoch(10 * NUM_STEPS * (comm.size if strategy.draws_from_all else 1), 10)
        master += 0.1 * torch.from_numpy(comm.rng.standard_normal(DIM)).float()
        while True:
            master -= rate * master
            comm.sleep(0.01 * (1 + 0.1 * comm.rng.uniform()))
            largest, mixing = float(master.abs().max()), strategy.step(master, 10)
            if mixing and mixing.last:
                return largest

    return max(run_simulated(NUM_RANKS, learner, NETWORK))


def options(name, **more):
    return mixing_of(name, period_frames=10, **more)


@pytest.mark.parametrize(
    "given, limit",
    [
        (options("gradient"), 2),
        (options("fixed-ring"), 2),
        (options("random-ring"), 2),
        (options("d1d"), 1),
        (options("dpsgd", topology="fixed-ring"), 2 / 3),
    ],
    ids=["gradient", "fixed-ring", "random-ring", "d1d", "dpsgd"],
)
def test_stability_limits_equal_eigenvalue_analysis(given, limit):
    """With mixing after the update, differences follow l (1 - a), with l < 1 the eigenvalues of the mixing;
    with gradients taken before the mixing, l - a. The mean follows 1 - a in both."""
    assert end(given, 0.93 * limit) < 0.01
    assert end(given, 1.15 * limit) > 1


@pytest.mark.parametrize("random_peers", [False, True])
def test_stability_limits_of_adpsgd(random_peers):
    """Pairs have the eigenvalues 0 and 1. The limit equals that of d1d if neighbours take turns, and is
    slightly higher with random ones; both are below 2."""
    given = mixing_options("adpsgd", random_peers=random_peers)
    assert end(given, 0.9) < 0.01
    assert end(given, 1.5 if random_peers else 1.2) > 1


@pytest.mark.parametrize("topology, beyond", [("fixed-ring", 1.2), ("random-ring", 1.4)])
def test_stability_limits_of_rings_without_barrier(topology, beyond):
    """Learners whose times differ by a tenth tolerate more than those of `dpsgd`, which mix in rounds."""
    given = mixing_options("adpsgd", topology=topology)
    assert end(given, 0.9) < 0.01
    assert end(given, beyond) > 1
