"""Kaldi's schedule: active ranks and frames of each iteration; the first iteration selects the best rank."""

import numpy as np
import pytest
import torch

from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import make_strategy, mixing_options

PERIOD, FRAMES = 40, 1000


def simulated_mixings(num_ranks, initial_ranks, num_epochs=2, num_frames=FRAMES):
    """For each mixing: frames of each rank in the iteration, whether ranks were compared, parameters before
    and after, `num_active`."""

    def rank(comm):
        strategy = make_strategy(
            comm, mixing_options("kaldi", period_frames=PERIOD, initial_ranks=initial_ranks)
        )
        strategy.training.objective, strategy.training.num_epochs = (lambda: -1.0 - comm.rank), num_epochs
        assert strategy.share == (0, 1) and strategy.num_averaged == num_ranks
        master, mixings, rng = torch.zeros(5), [], np.random.default_rng(comm.rank)
        strategy.restart(master)
        for _ in range(num_epochs):
            strategy.begin_epoch(num_frames, 10)
            own, last = 0, False
            while not last:
                frames = 0 if strategy.is_idle else 10
                master += torch.from_numpy(rng.standard_normal(5)).float() * (frames > 0)
                own = own + frames
                compares = strategy.compares
                active = strategy.num_active
                before = master.clone()
                mixing = strategy.step(master, frames)
                if mixing:
                    mixings.append((own, compares, active, before.numpy(), master.clone().numpy(), mixing))
                    own, last = 0, mixing.last
        return mixings

    return list(zip(*run_threads(num_ranks, rank), strict=True))


@pytest.mark.parametrize("num_ranks, initial_ranks", [(1, 1), (4, 1), (5, 2), (3, 8)])
def test_number_of_jobs_grows_and_active_ones_are_averaged(num_ranks, initial_ranks):
    seen, first = 0, min(initial_ranks, num_ranks)
    mixings = simulated_mixings(num_ranks, initial_ranks)
    for number, ranks in enumerate(mixings):
        expected = round(np.sqrt(first**2 + (num_ranks**2 - first**2) * seen / (2 * FRAMES)))
        frames = np.array([own for own, *_ in ranks])
        assert {active for _, _, active, *_ in ranks} == {expected}
        assert (frames > 0).tolist() == [rank < expected for rank in range(num_ranks)]
        whole = not ranks[0][5].last
        assert not whole or set(frames[:expected]) == {PERIOD}
        weights = (np.arange(num_ranks) == 0) if number == 0 else (frames > 0) / (frames > 0).sum()
        mean = sum(w * before for w, (_, _, _, before, *_) in zip(weights, ranks))
        for _, compares, _, _, after, mixing in ranks:
            np.testing.assert_allclose(after, mean, atol=1e-5)
            assert compares == (number == 0) and mixing.equal
        seen += ranks[0][5].frames
    assert [ranks[0][5].last for ranks in mixings].count(
        True
    ) == 2 and 2 * FRAMES <= seen < 2 * FRAMES + 10 * num_ranks
    assert len(mixings[-2]) == num_ranks


def go_on(num_ranks, num_mixings, states=None):
    """(state of each rank, frames of each mixing, J of each) after `num_mixings` mixings of ranks that
    resume from the states of others."""

    def rank(comm):
        strategy = make_strategy(comm, mixing_options("kaldi", period_frames=PERIOD))
        master, mixings, active = torch.zeros(1), [], []
        strategy.training.objective, strategy.training.num_epochs = (lambda: 0.0), 2
        strategy.restart(master)
        if states and len(states) == num_ranks:
            strategy.load_state_dict(states[comm.rank])
        elif states:
            strategy.resume_resized(states[0])
        strategy.begin_epoch(FRAMES - 7 * bool(states), 10)
        while len(mixings) < num_mixings and not (mixings and mixings[-1].last):
            active += [strategy.num_active] * (len(active) == len(mixings))
            mixings += filter(None, [strategy.step(master, 0 if strategy.is_idle else 10)])
        return strategy.state_dict(), [mixing.frames for mixing in mixings], active

    states, (frames, *_), (active, *_) = zip(*run_threads(num_ranks, rank))
    return states, frames, active


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_changed_number_of_ranks_processes_rest_of_epoch(num_ranks):
    """For any numbers of skipped frames, J continues from there with the new number of ranks, also after a
    further interruption."""
    states, before, _ = go_on(4, 4)
    seen = sum(before)
    _, frames, active = go_on(num_ranks, 1000, states)
    assert 0 < seen < FRAMES and 0 <= seen + sum(frames) - FRAMES < num_ranks
    begins = seen + np.cumsum([0, *frames[:-1]])
    assert active == np.round(np.sqrt(1 + (num_ranks**2 - 1) * begins / (2 * FRAMES))).tolist()
    assert go_on(num_ranks, 1000, go_on(num_ranks, 3, states)[0])[1:] == (frames[3:], active[3:])


@pytest.mark.parametrize("num_ranks, initial_ranks, num_epochs", [(8, 1, 1), (8, 2, 1), (6, 3, 2)])
def test_number_of_iterations_equals_kaldi(num_ranks, initial_ranks, num_epochs):
    """steps/nnet3/train_dnn.py: 2 A / (J_i + J_f) iterations for A archives, with round(J_i + (J_f - J_i) k /
    K) jobs in the k-th of K."""
    num_archives = 200
    active = np.array(
        [
            ranks[0][2]
            for ranks in simulated_mixings(
                num_ranks, initial_ranks, num_epochs, num_archives * PERIOD // num_epochs
            )
        ]
    )
    num_iters = 2 * num_archives // (initial_ranks + num_ranks)
    assert abs(len(active) - num_iters) <= 1 + num_epochs
    ideal = initial_ranks + (num_ranks - initial_ranks) * np.arange(len(active)) / num_iters
    assert np.abs(active - ideal).max() < 1
