"""H-ADPSGD with minibatches of different sizes, against its docstring: updates of a node's ranks are weighted
by frames."""

import numpy as np
import pytest
import torch

from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options

START, DIM = 0.5, 6
OPTIONS = mixing_options("hadpsgd", ranks_per_node=2)


def train(frames: np.ndarray, moves: np.ndarray):
    """Work of a rank: a minibatch of frames[t, rank] changes its parameters by moves[t, rank]. Returns its
    parameters after each step, and at the end."""

    def rank(comm):
        strategy, master, seen = make_strategy(comm, OPTIONS), torch.full((DIM,), START), []
        strategy.restart(master)
        strategy.begin_epoch(int(frames.sum()), int(frames.max()))
        mixing, steps = None, iter(range(len(frames)))
        while not (mixing and mixing.last):
            t = next(steps, None)
            if t is not None:
                master.add_(torch.from_numpy(moves[t, comm.rank]))
            mixing = strategy.step(master, int(frames[t, comm.rank]) if t is not None else 0)
            seen.append(master.numpy().copy())
        return seen

    return rank


def weighted(frames: np.ndarray, moves: np.ndarray, node: slice) -> np.ndarray:
    """Total change of the weights by the minibatches of a node."""
    return sum(
        (of_step[node] / of_step[node].sum()) @ step[node].astype(np.float64)
        for of_step, step in zip(frames, moves)
    )


def random_moves(frames: np.ndarray) -> np.ndarray:
    return (
        np.random.default_rng(3).standard_normal((*frames.shape, DIM)).astype(np.float32)
        * (frames > 0)[..., None]
    )


@pytest.mark.parametrize("frames", [[[30, 10]], [[5, 95], [40, 20], [1, 3]], [[12, 0], [6, 6]]])
def test_one_node_has_weighted_sum(frames):
    """After each step, both ranks have the weighted sum, by all-reduce."""
    frames = np.array(frames)
    moves = random_moves(frames)
    for seen in run_threads(2, train(frames, moves)):
        for t in range(len(frames)):
            expected = START + weighted(frames[: t + 1], moves[: t + 1], slice(0, 2))
            np.testing.assert_allclose(seen[t], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("frames", [[[30, 10, 7, 33]], [[20, 10, 3, 9], [8, 2, 1, 29], [10, 30, 30, 10]]])
def test_exchanges_between_nodes_conserve_mean(frames):
    """Exchanges between nodes conserve the mean of their weights. At the end, all nodes have this mean."""
    frames = np.array(frames)
    moves = random_moves(frames)
    expected = START + np.mean([weighted(frames, moves, slice(node, node + 2)) for node in (0, 2)], 0)
    for seen in run_simulated(4, train(frames, moves), ClusterNetwork(latency_s=1e-4, bandwidth=1e9)):
        np.testing.assert_allclose(seen[-1], expected, rtol=1e-5, atol=1e-5)
