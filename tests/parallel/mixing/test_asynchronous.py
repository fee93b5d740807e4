"""Asynchronous schemes on threads and in simulated time: conserved quantities, waiting times."""

import numpy as np
import pytest
import torch
from uneven_shards import check_neighbours_do_not_wait

from pyasr.base.errors import UserError
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options

NETWORK = ClusterNetwork(latency_s=1e-4, bandwidth=1e9)
START = 5.0


def train(options, goal=600, num_epochs=2, minibatch_s=lambda rank: 0.01, dim=8):
    """Work of a rank: each of its minibatches of 10 frames adds 1 to its own parameter and waits a little.

    Returns (parameters, own minibatches, reported frames, strategy).
    """

    def rank(comm):
        strategy = make_strategy(comm, options)
        master = torch.full((dim,), START)
        strategy.restart(master)
        num_minibatches = num_reported = 0
        for _ in range(num_epochs):
            strategy.begin_epoch(goal if strategy.share else 0, 10)
            while True:
                learns = strategy.share is not None
                if learns:
                    comm.sleep(minibatch_s(comm.rank))
                    master[comm.rank] += 1
                    num_minibatches += 1
                mixing = strategy.step(master, 10 * learns)
                num_reported += mixing.frames if mixing else 0
                if mixing and mixing.last:
                    assert mixing.equal and mixing.joint
                    break
        return master, num_minibatches, num_reported, strategy

    return rank


@pytest.mark.parametrize(
    "run", [run_threads, lambda num, rank: run_simulated(num, rank, NETWORK)], ids=["threads", "simulated"]
)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    "options",
    [
        mixing_options("adpsgd"),
        mixing_options("adpsgd", random_peers=True),
        mixing_options("hadpsgd", ranks_per_node=2),
        mixing_options("hadpsgd"),
        mixing_options("asgd"),
        mixing_options("asgd", max_distance=2),
    ],
    ids=["adpsgd", "adpsgd-random", "hadpsgd-2", "hadpsgd-host", "asgd", "asgd-2"],
)
def test_every_update_is_conserved(run, num_ranks, options):
    """Updates of rank r change only parameter r. Averaged over learners, it is the number of minibatches of r
    divided by P; with sums, that number."""
    if options.parallel == "asgd" and num_ranks == 2:
        return
    results = run(num_ranks, train(options, minibatch_s=lambda rank: 0.0002 * (1 + rank % 3)))
    master, _, _, strategy = results[0]
    moves = np.array([number for _, number, _, _ in results])
    frames = {report for *_, report, _ in results}
    assert frames == {10 * moves.sum()} and min(frames) >= 1200
    # on a busy machine, threads may receive the end late
    assert run is run_threads or min(frames) <= 1200 + 2 * 10 * num_ranks * 8
    for other, *_ in results:
        assert torch.equal(other, master)
    if options.parallel == "hadpsgd":
        return  # see test_ranks_of_a_node_update_together
    np.testing.assert_allclose(master.numpy()[:num_ranks] - START, moves / strategy.num_averaged, rtol=1e-4)


@pytest.mark.parametrize(
    "run", [run_threads, lambda num, rank: run_simulated(num, rank, NETWORK)], ids=["threads", "simulated"]
)
@pytest.mark.parametrize("num_ranks", [1, 2, 5])
@pytest.mark.parametrize(
    "options",
    [
        mixing_options("adpsgd", topology="fixed-ring"),
        mixing_options("adpsgd", topology="random-ring", payload="bfloat16"),
        mixing_options("adpsgd", topology="exponential"),
        mixing_options("hadpsgd", topology="random-ring", ranks_per_node=2),
    ],
    ids=["fixed-ring", "random-ring", "exponential", "hadpsgd"],
)
def test_learners_mixing_with_neighbours_reach_consensus(run, num_ranks, options):
    """At the end of each of two epochs, all have one model that includes the updates of all. All frames are
    reported."""
    results = run(num_ranks, train(options, minibatch_s=lambda rank: 0.0002 * (1 + rank % 3)))
    master = results[0][0]
    frames = {report for *_, report, _ in results}
    assert frames == {10 * sum(number for _, number, _, _ in results)} and min(frames) >= 1200
    assert run is run_threads or min(frames) <= 1200 + 2 * 10 * num_ranks * 8
    assert all(torch.equal(other, master) for other, *_ in results)
    assert (master[:num_ranks] > START + 1).all() and (master[num_ranks:] == START).all()


@pytest.mark.parametrize(
    "run", [run_threads, lambda num, rank: run_simulated(num, rank, NETWORK)], ids=["threads", "simulated"]
)
def test_learners_do_not_wait_for_neighbours(run):
    """test_rank.py tests the same over MPI."""
    run(4, check_neighbours_do_not_wait)


def test_ranks_of_a_node_update_together():
    """Updates of a node's ranks are averaged with weights by frames, and nodes of equal size are averaged:
    each number grows by its updates divided by P."""
    results = run_simulated(
        8,
        train(mixing_options("hadpsgd"), minibatch_s=lambda rank: 0.01 * (1 + rank // 4)),
        ClusterNetwork(latency_s=1e-4, bandwidth=1e9, ranks_per_host=2),
    )
    moves = np.array([number for _, number, _, _ in results])
    np.testing.assert_allclose(results[0][0].numpy() - START, moves / 8, rtol=1e-4)
    assert (moves[::2] == moves[1::2]).all() and moves[0] > 1.5 * moves[7]


def virtual_seconds(options, num_ranks, goal=2400, minibatch_s=lambda rank: 0.01):
    """Duration of one epoch in simulated time."""
    rank = train(options, goal, 1, minibatch_s)

    def timed(comm):
        rank(comm)
        return comm.time()

    return max(run_simulated(num_ranks, timed, NETWORK))


@pytest.mark.parametrize("factor", [2, 10, 100])
def test_stragglers_do_not_delay_adpsgd(factor):
    """One of 8 learners is slower. The epoch takes at most 8 / (7 + 1 / factor) times as long, plus one of
    its minibatches."""
    for straggler in (3, 4):  # a sender, a receiver
        slow = virtual_seconds(
            mixing_options("adpsgd"), 8, 16_000, lambda rank: 0.01 * (factor if rank == straggler else 1)
        )
        assert 2 * 8 / 8 < slow < 1.02 * 2 * 8 / 7 + 0.01 * factor


@pytest.mark.parametrize("topology", ["fixed-ring", "random-ring", "exponential"])
def test_straggler_delays_only_rings_with_barrier(topology):
    """One of 8 learners is 100 times slower. With a barrier, so are all; without one, an epoch takes 8 / 7 as
    long plus the last minibatch of the slow learner."""

    def seconds(scheme, frames):
        given = mixing_options(scheme, topology=topology)
        return [
            virtual_seconds(given, 8, frames, lambda rank: 0.01 * (factor if rank == 3 else 1))
            for factor in (1, 100)
        ]

    usual, slow = seconds("dpsgd", 200)
    assert slow > 95 * usual
    usual, slow = seconds("adpsgd", 8000)
    assert usual < slow < 1.05 * 8 / 7 * usual + 0.01 * 100


def test_asgd_speed_scales_with_shards_up_to_server_limit():
    """1 server and 5 shards on a fast network are 5 times as fast as one learner. While the server is busy,
    shards continue to train."""
    single = virtual_seconds(mixing_options("asgd"), 1)
    assert virtual_seconds(mixing_options("asgd"), 6) == pytest.approx(single / 5, rel=0.15)

    def shard(comm):
        results = train(mixing_options("asgd"), goal=2400, num_epochs=1, dim=2500)(comm)
        return comm.time(), results

    slow = run_simulated(6, shard, ClusterNetwork(latency_s=1e-4, bandwidth=10_000 / 0.003))
    assert max(time for time, _ in slow) < 1.7 * single / 5
    assert slow[0][1][3].server.num_changes < 0.7 * 240


def test_invalid_configurations_are_refused():
    with pytest.raises(
        UserError, match="one rank is the server, so 2 ranks train no faster than 1; use 3 or more ranks"
    ):
        run_threads(2, lambda comm: make_strategy(comm, mixing_options("asgd")))
