"""The single-rank throughput, in virtual time: the duration of a step depends only on the operations in
it."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_jobs import store, training, with_options

from pyasr.nn.layers.natural_gradient import OnlineNaturalGradient
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.job import calibration
from pyasr.train.sgd.learner import Learner

MINIBATCH, SIDES = 16, 4  # two layers
STEP_S, UPDATE_S = 1.0, 0.25


@pytest.fixture(scope="module", autouse=True)
def quick_baseline():
    """The measurement is not shortened here."""


class Clock:
    """Counts operations, and reports their duration, `scale` seconds for one second."""

    def __init__(self, monkeypatch, scale: float = 1.0):
        self.scale, self.steps, self.updates, self.orthogonal_steps = scale, 0, 0, 0
        for kind, method, count in (
            (Learner, "step", "steps"),
            (OnlineNaturalGradient, "_update", "updates"),
            (Learner, "_keep_semi_orthogonal", "orthogonal_steps"),
        ):
            monkeypatch.setattr(kind, method, self._counting(getattr(kind, method), count))
        monkeypatch.setattr(calibration, "time", SimpleNamespace(perf_counter=self.now))
        self.readings = []

    def _counting(self, method, count):
        def counted(*arguments, **keywords):
            setattr(self, count, getattr(self, count) + 1)
            return method(*arguments, **keywords)

        return counted

    def now(self) -> float:
        self.readings.append((self.steps, self.updates))
        return self.scale * (STEP_S * self.steps + UPDATE_S * (self.updates + self.orthogonal_steps))

    def timed(self) -> list[tuple[int, int]]:
        """(steps, updates) between two readings of the clock, of the warm-up and of each cycle."""
        return [(b - a, d - c) for (a, c), (b, d) in zip(self.readings[::2], self.readings[1::2])]


def job_of(tmp_path, period: int = 0, **options):
    """A job with natural gradient of this update period; 0: without natural gradient."""
    natural_gradient = NaturalGradientOptions("online" if period else "none", ng_update_period=period or 4)
    return training(
        SoloComm(),
        tmp_path,
        store(8),
        with_options(learner=dict(natural_gradient=natural_gradient, **options)),
        tries_speed=True,
    )


@pytest.mark.parametrize("steps_before", [0, 5, 33])
@pytest.mark.parametrize("period", [1, 2, 4, 7, 40])
def test_measured_updates_are_as_frequent_as_in_long_training(period, steps_before, tmp_path, monkeypatch):
    """One cycle, which takes more than half a second, at the beginning of a training or later."""
    job = job_of(tmp_path, period)
    for _ in range(steps_before):
        job.learner.step(*job.training.largest(job.minibatch), 0.01)
    clock = Clock(monkeypatch)
    assert job.single_rank_speed() == pytest.approx(MINIBATCH / (STEP_S + SIDES * UPDATE_S / period))
    assert clock.timed()[1:] == [(period, SIDES)]


def test_update_frequency_of_long_training(tmp_path, monkeypatch):
    """The reference of the test above: 40 periods after the first eleven minibatches."""
    job = job_of(tmp_path, 4)
    clock, counted = Clock(monkeypatch), []
    for _ in range(11 + 40 * 4 + 1):
        counted.append(clock.updates)
        job.learner.step(*job.training.largest(job.minibatch), 0.001)
    assert counted[-1] - counted[11] == 40 * SIDES and counted[11] - counted[1] == 10 * SIDES


def test_cost_of_measurement_is_limited(tmp_path, monkeypatch):
    """Forty minibatches of a long period; ten cycles of a short one, or the cycles of half a second."""
    clock = Clock(monkeypatch)
    job_of(tmp_path, 1000).single_rank_speed()
    assert [steps for steps, _ in clock.timed()] == [1, 40]
    clock = Clock(monkeypatch, 1e-6)
    job_of(tmp_path, 4).single_rank_speed()
    assert clock.timed()[1:] == 10 * [(4, SIDES)]
    clock = Clock(monkeypatch, 0.2 / (4 * STEP_S + SIDES * UPDATE_S))
    job_of(tmp_path, 4).single_rank_speed()
    assert clock.timed()[1:] == 3 * [(4, SIDES)]


def test_steps_without_natural_gradient_are_timed_individually(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, 1e-6)
    assert job_of(tmp_path).single_rank_speed() == pytest.approx(MINIBATCH / 1e-6)
    assert clock.timed() == 11 * [(1, 0)]


def test_semi_orthogonal_steps_are_measured(tmp_path, monkeypatch):
    """After every fourth minibatch."""
    job = job_of(tmp_path)
    job.learner.semi_orthogonal = [0]
    clock = Clock(monkeypatch)
    assert job.single_rank_speed() == pytest.approx(MINIBATCH / (STEP_S + UPDATE_S / 4))
    assert clock.timed()[1:] == [(4, 0)]


@pytest.mark.parametrize("steps_before", [0, 5, 33])
def test_measurement_leaves_learner_unchanged(steps_before, tmp_path):
    job = job_of(tmp_path, 4, momentum=0.5)
    for _ in range(steps_before):
        job.learner.step(*job.training.largest(job.minibatch), 0.01)
    before, parameters = copy.deepcopy(job.learner.state_dict()), job.learner.flat.master.clone()
    assert job.single_rank_speed() > 0
    assert torch.equal(parameters, job.learner.flat.master) and not job.learner.flat.grad.any()
    assert flat(before) == flat(job.learner.state_dict())


def flat(state) -> list:
    """Plain values of a state."""
    if isinstance(state, dict):
        return [(key, *flat(value)) for key, value in state.items()]
    return state.tolist() if isinstance(state, torch.Tensor | np.ndarray) else [state]


def test_first_rank_with_frames_is_measured(tmp_path):
    steps = []

    def rank(comm):
        job = training(comm, tmp_path / str(comm.rank), store(8 if comm.rank else 0), tries_speed=True)
        step = job.learner.step
        job.learner.step = lambda *arguments: (steps.append(comm.rank), step(*arguments))[1]
        return job.single_rank_speed()

    speeds = run_threads(3, rank)
    assert set(steps) == {1} and speeds[0] == speeds[1] == speeds[2] > 0
