"""Staleness of AD-PSGD's gradients, measured from outside: from the weights at which they were computed, the
weights to which they were applied, and the messages between ranks in between."""

from collections import Counter

import numpy as np
import pytest
import torch

from pyasr.parallel.mixing import peers
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.simulation.simulator import ClusterNetwork, ComputeTime, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options

NUM_RANKS, DIM = 8, 20
COMPUTE = ComputeTime(0.01, variation=0.2)


class Overheard(PayloadCodec):
    """Records the exchanges of one rank: half of the difference between received and sent parameters."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.halves = []

    def prepare(self, x):
        self.said = x.double().numpy()
        super().prepare(x)

    def exchange(self, to, incoming, source):
        report = super().exchange(to, incoming, source)
        self.halves.append((report.double().numpy() - self.said) / 2)
        return report


def staleness_of(taken_at, applied_to, halves) -> int:
    """Number of exchanges between the weights at which a gradient was computed and those to which it was
    applied."""
    for number in range(len(halves) + 1):
        if np.allclose(taken_at + sum(halves[:number]), applied_to, atol=1e-4):
            return number
    raise AssertionError("no exchanges lead there")


def train(comm, options):
    """One epoch. Returns the numbers of updates by staleness, and the staleness that the strategy reports."""
    strategy, master, found = make_strategy(comm, options), torch.zeros(DIM), Counter()
    share_move = strategy.share_move
    halves = strategy.peer.codec.halves
    random = np.random.default_rng(comm.rank)

    def watched(master, frames):
        changed = share_move(master, frames)
        number = staleness_of(taken_at, master.double().numpy() - move, halves)
        del halves[:number]
        found[number] += 1
        return changed

    strategy.share_move, mixing = watched, None
    strategy.restart(master)
    strategy.begin_epoch(4000, 10)
    while mixing is None or not mixing.last:
        taken_at, move = master.double().numpy(), random.standard_normal(DIM)
        comm.sleep(COMPUTE.sample(comm.rng, comm.rank))
        mixing = strategy.step(master.add_(torch.from_numpy(move)), 10)
    return found, strategy.peer.staleness


@pytest.mark.parametrize("random_peers", [False, True])
def test_staleness_of_adpsgd(monkeypatch, random_peers):
    """From its second minibatch on, a sender computes its gradient before an exchange and applies it after
    it: staleness 1. That of a receiver is the number of requests by senders in between: with two neighbours,
    one on average and most often."""
    monkeypatch.setattr(peers, "PayloadCodec", Overheard)
    options = mixing_options("adpsgd", random_peers=random_peers)
    results = run_simulated(
        NUM_RANKS, lambda comm: train(comm, options), ClusterNetwork(latency_s=1e-4, bandwidth=1e9)
    )
    for rank, (found, said) in enumerate(results):
        assert found == said
        if rank % 2:
            assert found == {0: 1, 1: found.total() - 1} and found.total() > 40
    receivers = sum((found for found, _ in results[::2]), Counter())
    assert sum(number * moves for number, moves in receivers.items()) / receivers.total() == pytest.approx(
        1, abs=0.1
    )
    assert receivers[1] > 0.3 * receivers.total() and max(receivers) <= (5 if random_peers else 3)
