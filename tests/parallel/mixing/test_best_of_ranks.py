"""The first mixing of new networks: all ranks get the parameters of the best one, also with uneven shards."""

import math

import numpy as np
import pytest
import torch

from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import make_strategy, mixing_options

OPTIONS = mixing_options(period_frames=20, first_mixing="best")
MINIBATCH = 10


def mixings(shards, objectives, restart_after=0):
    """Each rank adds its own noise in every minibatch of its shard. Returns, for each mixing, (parameters
    before, after, frames since the last, whether ranks were compared). The strategy is restarted at the
    beginning and after the mixing of that number."""

    def rank(comm):
        strategy, rng = make_strategy(comm, OPTIONS), np.random.default_rng(comm.rank)
        strategy.training.objective = lambda: objectives[comm.rank]
        strategy.restart(torch.zeros(9))
        strategy.begin_epoch(shards[comm.rank], MINIBATCH)
        master, left, since, report, mixing = torch.zeros(9), shards[comm.rank], 0, [], None
        while mixing is None or not mixing.last:
            frames = min(left, MINIBATCH)
            left, since = left - frames, since + frames
            master += torch.from_numpy(rng.standard_normal(9)).float() * (frames > 0)
            before, compares = master.clone(), strategy.compares
            mixing = strategy.step(master, frames)
            if mixing is not None:
                report.append((before, master.clone(), since, compares))
                since = 0
                if len(report) == restart_after:
                    strategy.restart(master)
        return report

    return run_threads(len(shards), rank)


def check(results, best, restart_after=0):
    """Mixings after a restart take the parameters of rank `best`; others take the weighted average."""
    for number, of_ranks in enumerate(zip(*results, strict=True)):
        frames = np.array([since for _, _, since, _ in of_ranks])
        expected = sum(
            weight * before.double() for weight, (before, *_) in zip(frames / frames.sum(), of_ranks)
        ).float()
        compared = number in (0, restart_after)
        for _, after, _, compares in of_ranks:
            assert compares == compared
            torch.testing.assert_close(
                after, of_ranks[best][0] if compared else expected, atol=0 if compared else 1e-6, rtol=0
            )


@pytest.mark.parametrize("shards", [[60, 60, 60], [100, 90, 30, 0], [45, 50, 10], [60]])
@pytest.mark.parametrize("restart_after", [0, 1])
def test_first_mixing_takes_best_rank_and_later_ones_average(shards, restart_after):
    for best in range(min(2, len(shards))):
        objectives = [-2.0 + (rank == best) for rank in range(len(shards))]
        check(mixings(shards, objectives, restart_after), best, restart_after)


def test_ranks_with_little_or_no_data_are_not_candidates():
    """Rank 1 has 5 of 20 frames, rank 2 none. Their objectives are better, but do not count."""
    check(mixings([60, 5, 0, 20], [-3.0, -1.0, math.inf, -2.0]), best=3)


@pytest.mark.parametrize(
    "objectives, best", [([math.nan, -9.0], 1), ([-math.inf, -math.inf], 0), ([-1.0, -1.0], 0)]
)
def test_nan_objectives_lose_and_ties_go_to_lowest_rank(objectives, best):
    check(mixings([40, 40], objectives), best)


def test_non_finite_parameters_are_not_distributed():
    def rank(comm):
        strategy = make_strategy(comm, OPTIONS)
        strategy.training.objective = lambda: [-math.inf, -3.0][comm.rank]
        strategy.restart(torch.zeros(1))
        strategy.begin_epoch(20, 20)
        master = torch.tensor([[math.nan], [2.0]][comm.rank])
        strategy.step(master, 20)
        return master

    assert [master.tolist() for master in run_threads(2, rank)] == [[2.0], [2.0]]


def test_state_records_pending_first_mixing():
    strategy = make_strategy(SoloComm(), OPTIONS)
    strategy.restart(torch.zeros(3))
    strategy.begin_epoch(40, 20)
    new, resumed = strategy.state_dict(), make_strategy(SoloComm(), OPTIONS)
    strategy.step(torch.zeros(3), 20)
    for state, compares in ((new, True), (strategy.state_dict(), False)):
        resumed.restart(torch.zeros(3))
        resumed.load_state_dict(state)
        assert resumed.compares == compares


def test_comparison_needs_the_option():
    strategy = make_strategy(SoloComm(), mixing_options())
    strategy.restart(torch.zeros(3))
    assert not strategy.compares
