"""The parameter server of asgd in simulated time: its equations against float64, and the times of server and
shards."""

import numpy as np
import pytest
import torch

from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options

DIM, NUM_SHARDS = 1000, 3


def epoch(strategy, comm, goal, minibatch_s, move=lambda: 0.0):
    """Train until the epoch ends; shards have minibatches of 10 frames. Returns (parameters, seconds of
    computing)."""
    master, computed_s, learns = torch.zeros(DIM), 0.0, strategy.share is not None
    strategy.restart(master)
    strategy.begin_epoch(goal * learns, 10)
    mixing = None
    while mixing is None or not mixing.last:
        if learns:
            comm.sleep(minibatch_s[comm.rank])
            computed_s += minibatch_s[comm.rank]
            master += move()
        mixing = strategy.step(master, 10 * learns)
    return master, computed_s


def test_momentum_and_weight_decay_equal_equations():
    """Shards that are 2 and 6 times slower than the first get theta at times that the test observes. With s
    the changes of theta since a shard last got it, v <- mu v + lambda^s d, theta <- theta + v."""
    options = mixing_options("asgd", server_momentum=0.5, gradient_decay=0.8, max_distance=1)

    def rank(comm):
        strategy, seen, random = make_strategy(comm, options), [], np.random.default_rng(comm.rank)
        share_move = strategy.share_move

        def watched(master, frames):
            changed = share_move(master, frames)
            if changed:
                seen.append((comm.time(), comm.rank, moves[-1], master.double().numpy()))
            return changed

        def move():
            moves.append(random.standard_normal(DIM))
            return torch.from_numpy(moves[-1]).float()

        strategy.share_move, moves = watched, []
        return epoch(strategy, comm, 600, (0, 0.010, 0.023, 0.057), move)[0], seen

    results = run_simulated(1 + NUM_SHARDS, rank, ClusterNetwork(latency_s=1e-5, bandwidth=1e9))
    theta, v, known, unknown = np.zeros(DIM), np.zeros(DIM), np.zeros(1 + NUM_SHARDS, int), []
    for number, (_, shard, move, given) in enumerate(
        sorted((event for _, seen in results for event in seen), key=lambda event: event[0])
    ):
        unknown.append(number - known[shard])
        v = 0.5 * v + 0.8 ** unknown[-1] * move
        theta = theta + v
        np.testing.assert_allclose(given, theta, atol=1e-4)
        known[shard] = number + 1
    assert len(unknown) >= 60 and set(unknown) >= {0, 1, 2} and max(unknown) >= 7
    for master, _ in results:
        np.testing.assert_allclose(master.numpy(), theta, atol=1e-4)


MESSAGE_S, LATENCY_S = 0.1, 1e-4
NETWORK = ClusterNetwork(LATENCY_S, bandwidth=4 * DIM / MESSAGE_S)
EXCHANGE_S = 2 * (MESSAGE_S + LATENCY_S)  # an update to the server, theta back


@pytest.mark.parametrize(
    "max_distance, minibatch_s, waits_of_shards, waits_of_server",
    [(0, (0, 1.00, 1.13, 1.37), 0.0, 0.65), (1, (0, 0.1, 0.1, 0.1), 0.5, 0.0)],
    ids=["server waits", "shards wait"],
)
def test_times_of_server_and_shards_add_up(max_distance, minibatch_s, waits_of_shards, waits_of_server):
    """Computing, waiting and communication add up to the total, also for the server, which waits for shards
    with long computations. If they compute for 0.1 s and the server takes 0.2 s for each of three, they wait
    for half of the time."""
    options = mixing_options("asgd", max_distance=max_distance)

    def rank(comm):
        strategy = make_strategy(comm, options)
        begin = comm.time()
        _, computed_s = epoch(strategy, comm, 900, minibatch_s)
        return computed_s, *strategy.times, comm.time() - begin, strategy.server

    results = run_simulated(1 + NUM_SHARDS, rank, NETWORK)
    num_changes = results[0][-1].num_changes
    for number, (computed_s, waiting_s, mixing_s, whole_s, _) in enumerate(results):
        assert computed_s + waiting_s + mixing_s == pytest.approx(whole_s, rel=1e-3)
        assert waiting_s / whole_s == pytest.approx(waits_of_shards if number else waits_of_server, abs=0.06)
    consensus_s = MESSAGE_S + 2 * LATENCY_S
    mixing_s = np.array([mixing_s for _, _, mixing_s, _, _ in results]) - consensus_s
    assert mixing_s[0] == pytest.approx(num_changes * EXCHANGE_S, rel=0.02)
    assert mixing_s[1:].sum() == pytest.approx(mixing_s[0], rel=0.02)
