"""Features of Su's program in addition to parameter mixing: velocities are mixed, too, and ranks take turns
at first."""

import numpy as np
import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import check_strategy, make_strategy, mixing_options

PERIOD = 20


def recorded_mixings(num_ranks, frames, num_epochs=1, **options):
    """For each rank, (parameters, velocity) before and after each mixing, and whether all ranks were equal
    after it."""

    def rank(comm):
        strategy = make_strategy(comm, mixing_options(period_frames=PERIOD, **options))
        master, velocity, rng = torch.zeros(5), torch.zeros(5), np.random.default_rng(comm.rank)
        strategy.training.velocity = velocity if options.get("mix_momentum") else None
        strategy.restart(master)
        found = []
        for _ in range(num_epochs):
            strategy.begin_epoch(frames[comm.rank], 10)
            mixing, seen = None, 0
            while not (mixing and mixing.last):
                now = min(10, frames[comm.rank] - seen)
                for vector in (master, velocity):
                    vector += torch.from_numpy(rng.standard_normal(5)).float()
                before, seen = (master.clone(), velocity.clone()), seen + now
                mixing = strategy.step(master, now)
                if mixing:
                    found.append((*before, master.clone(), velocity.clone(), mixing.equal))
        return found

    return [
        [[column.numpy() if torch.is_tensor(column) else column for column in mixing] for mixing in of_rank]
        for of_rank in run_threads(num_ranks, rank)
    ]


def test_all_reduce_averages_velocities_by_frames():
    ranks = recorded_mixings(3, [60, 60, 30], mix_momentum=True)
    for mixing, weights in enumerate([np.full(3, 1 / 3), np.array([0.4, 0.4, 0.2]), np.array([0.5, 0.5, 0])]):
        for before, after in ((0, 2), (1, 3)):
            mean = sum(w * ranks[r][mixing][before] for r, w in enumerate(weights))
            for r in range(3):
                np.testing.assert_allclose(ranks[r][mixing][after], mean, atol=1e-6)


def test_butterfly_mixes_velocities():
    """The last mixing of an epoch does not equalise velocities, because the consensus is of parameters."""
    ranks = recorded_mixings(4, [60] * 4, parallel="butterfly", mix_momentum=True)
    for mixing, shift in enumerate([1, 2, 1]):
        for r in range(4):
            for before, after in ((0, 2), (1, 3)):
                if mixing < 2 or after == 3:
                    mean = 0.5 * (ranks[r][mixing][before] + ranks[r ^ shift][mixing][before])
                    np.testing.assert_allclose(ranks[r][mixing][after], mean, atol=1e-6)
    assert not np.allclose(ranks[0][2][3], ranks[2][2][3], atol=1e-3)


@pytest.mark.parametrize("parallel", ["allreduce", "ring"])
def test_ranks_take_turns_in_first_mixings(parallel):
    """Until a rank has seen 50 frames, in the third mixing: all ranks get the parameters of rank 0, 1, 2 in
    turn."""
    ranks = recorded_mixings(3, [100] * 3, parallel=parallel, turns_frames=50)
    for mixing in range(3):
        assert all(
            np.array_equal(of_rank[mixing][2], ranks[mixing][mixing][0]) and of_rank[mixing][4]
            for of_rank in ranks
        )
    expected = (
        sum(of_rank[3][0] for of_rank in ranks) / 3
        if parallel == "allreduce"
        else (ranks[0][3][0] + ranks[2][3][0]) / 2
    )
    np.testing.assert_allclose(ranks[0][3][2], expected, atol=1e-6)


def test_ranks_without_data_take_no_turn():
    """Also ranks whose data have ended. Otherwise the work of all others would be lost."""
    ranks = recorded_mixings(3, [60, 0, 40], turns_frames=100)
    for mixing, turn in enumerate([0, 2, 0]):
        assert all(np.array_equal(of_rank[mixing][2], ranks[turn][mixing][0]) for of_rank in ranks)


def test_velocities_are_unmixed_by_default():
    ranks = recorded_mixings(2, [40, 40])
    assert all(np.array_equal(mixing[1], mixing[3]) for of_rank in ranks for mixing in of_rank)


def test_velocities_are_sent_only_as_float32():
    with pytest.raises(
        UserError,
        match="--mix-momentum: velocities travel as float32 only; omit it, or omit --payload bfloat16",
    ):
        check_strategy(mixing_options(mix_momentum=True, payload="bfloat16"))
