"""Trainings whose first mixings, at the beginning and after each growth, select the best rank's parameters;
with uneven shards."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from toy_jobs import NUM_PDFS, SEED, Crash, crash_after, store, training, with_options

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.evolve.growth import Growth

OPTIONS = with_options(
    dnn=dict(hidden_layers=3, activation="tanh"),
    learner=dict(
        max_change=0.5,
        momentum=0.5,
        natural_gradient=NaturalGradientOptions("online", ng_rank_in=4, ng_rank_out=4),
    ),
    growth=dict(layer_period_frames=400, mix_up=8, mix_up_min_count=1),
    mixing=dict(first_mixing="best"),
    loop=dict(checkpoint_frames=1),  # at every mixing
)
SIZES = [6, 5, 1, 0]  # utterances of 50 frames on each rank


class Step(NamedTuple):
    """The effect of one minibatch."""

    sums: torch.Tensor
    size: int
    change_scale: float


class Mixed(NamedTuple):
    """One mixing on one rank: the steps before it, and the parameters before and after."""

    steps: list[Step]
    before: torch.Tensor
    after: torch.Tensor
    compared: bool


def growing_job(comm, directory):
    job = training(comm, directory, store(SIZES[comm.rank], comm.rank), OPTIONS)
    total_frames = job.schedule.epoch_frames * OPTIONS.schedule.num_epochs
    job.growth = Growth(OPTIONS.growth, OPTIONS.dnn, np.arange(10, 10 + NUM_PDFS), total_frames, SEED, comm)
    return job


def observed(job):
    """A list of the job's mixings, filled while the job runs."""
    steps, mixings = [], []
    learn, mix = job.learner.step, job.strategy.step

    def step(x, pdfs, rate, change_scale=1.0):
        steps.append(Step(learn(x, pdfs, rate, change_scale), len(pdfs), change_scale))
        return steps[-1].sums

    def mixing(master, frames):
        before, compares = master.clone(), job.strategy.compares
        result = mix(master, frames)
        if result is not None:
            mixings.append(Mixed(steps.copy(), before, master.clone(), compares))
            steps.clear()
        return result

    job.learner.step, job.strategy.step = step, mixing
    return mixings


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(mixings, job, final held-out accuracy) of each rank."""
    directory = tmp_path_factory.mktemp("whole") / "job"

    def rank(comm):
        job = growing_job(comm, directory)
        mixings = observed(job)
        job.run()
        return mixings, job, job.evaluate().accuracy

    return run_threads(len(SIZES), rank)


def test_all_ranks_take_parameters_of_best_rank(runs):
    """By the sums of the steps; ranks with less than half of the maximum number of frames are ignored."""
    num_compared = 0
    for of_ranks in zip(*(mixings for mixings, *_ in runs), strict=True):
        sums = np.array([sum((step.sums.numpy() for step in mixed.steps), np.zeros(3)) for mixed in of_ranks])
        frames = sums[:, 2]
        if not frames.any() or not of_ranks[0].compared:
            continue
        objectives = np.where(2 * frames >= frames.max(), -sums[:, 0] / np.maximum(frames, 1), -math.inf)
        expected = of_ranks[int(objectives.argmax())].before
        assert all(torch.equal(mixed.after, expected) for mixed in of_ranks)
        num_compared += 1
    assert num_compared == 4  # the beginning, two layers, more outputs


def test_later_mixings_are_averages(runs):
    for of_ranks in zip(*(mixings for mixings, *_ in runs), strict=True):
        frames = np.array([sum(step.size for step in mixed.steps) for mixed in of_ranks])
        if frames.any() and not of_ranks[0].compared:
            expected = sum(
                weight * mixed.before.double() for weight, mixed in zip(frames / frames.sum(), of_ranks)
            )
            for mixed in of_ranks:
                torch.testing.assert_close(mixed.after, expected.float(), rtol=0, atol=1e-6)


def test_minibatches_and_limits_are_halved_until_comparison(runs):
    for mixings, *_ in runs:
        for mixed in mixings:
            scale, most = (math.sqrt(0.5), 8) if mixed.compared else (1.0, 16)
            assert all(step.change_scale == scale and step.size <= most for step in mixed.steps)
    first, second, *_ = runs[0][0]
    assert [step.size for step in first.steps] == [8] * 8 and [step.size for step in second.steps] == [16] * 4


def test_all_frames_are_trained_on(runs):
    for _, job, accuracy in runs:
        assert job.position.frames_seen == 3 * 50 * sum(SIZES)
        assert torch.equal(job.learner.flat.master, runs[0][1].learner.flat.master)
        assert (
            job.learner.network.options.hidden_layers == 3
            and job.learner.network.layers[-1].out_features == 8
        )
        assert accuracy > 0.5  # a fifth by chance


def test_change_limit_scales_with_root_of_half(tmp_path):
    """With a rate so high that the limit always applies; after the first mixing the whole limit applies."""
    options = with_options(
        learner=dict(max_change=0.5),
        mixing=dict(first_mixing="best"),
        schedule=dict(learning_rate=100.0, num_epochs=1),
    )
    job = training(SoloComm(), tmp_path / "job", store(3), options)
    learn, moved = job.learner.step, []

    def step(*arguments):
        before = job.learner.flat.master.clone()
        sums = learn(*arguments)
        moved.append(float((job.learner.flat.master - before).norm()))
        return sums

    job.learner.step = step
    job.run()
    np.testing.assert_allclose(moved[:8], 0.5 * math.sqrt(0.5), rtol=1e-4)
    np.testing.assert_allclose(moved[8:], 0.5, rtol=1e-4)


def test_resume_between_growth_and_mixing_gives_same_bits(runs, tmp_path):
    """One rank dies repeatedly, soon after its start; every mixing writes a checkpoint."""
    compares = []

    def rank(comm):
        job = growing_job(comm, tmp_path / "cut")
        crash_after(job, 9 if comm.rank == 0 else 10_000)
        resume = job._resume

        def resumed():
            found = resume()
            compares.append(found and job.strategy.compares)
            return found

        job._resume = resumed
        job.run()
        return job.learner.flat.master

    masters, num_crashes = None, 0
    while masters is None:
        try:
            masters = run_threads(len(SIZES), rank)
        except Crash:
            num_crashes += 1
    assert num_crashes > 5 and sum(compares) >= len(SIZES)
    assert all(torch.equal(master, runs[0][1].learner.flat.master) for master in masters)
