"""Every scheme trains a network in the real loop, with uneven shards, on threads, and resumes after a
crash."""

import numpy as np
import pytest
import torch
from toy_jobs import Crash, crash_after, poisoned, store, training, with_options

from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import make_strategy, strategy_names
from pyasr.train.evolve.growth import Growth, GrowthOptions

SIZES = [10, 10, 3, 0]
SELDOM = dict(log_frames=1000, checkpoint_frames=1000)
# schemes that move further than the mean
RATES = {"bmuf": 0.03, "bmuf-classical": 0.03, "slowmo": 0.05, "diloco": 0.05, "asgd": 0.05}


def frames_of(comm, options, sizes):
    """The frames of this rank: a shard with this number of utterances, all shards, or none."""
    share = make_strategy(comm, options.mixing).share
    return (
        store(0)
        if share is None
        else store(sum(sizes))
        if share[1] == 1
        else store(sizes[comm.rank], comm.rank)
    )


def vector(parameters):
    return torch.cat([value.flatten() for value in parameters])


@pytest.mark.parametrize(
    "name, more", [*((name, {}) for name in strategy_names()), ("adpsgd", dict(topology="random-ring"))]
)
def test_every_scheme_learns_with_uneven_shards(tmp_path, name, more):
    options = with_options(
        mixing=dict(parallel=name, **more),
        schedule=dict(lr_scaling="none", num_epochs=4, learning_rate=RATES.get(name, 0.1)),
        loop=SELDOM,
    )

    def rank(comm):
        job = training(comm, tmp_path / "job", frames_of(comm, options, SIZES), options)
        job.run()
        return job.learner.flat.master.clone(), job.evaluate(), job.position.frames_seen

    results = run_threads(4, rank)
    for master, totals, frames_seen in results:
        assert torch.equal(master, results[0][0]) and frames_seen == results[0][2] >= 4 * 50 * sum(SIZES)
        assert totals.accuracy > 0.8


@pytest.mark.parametrize(
    "name", ["allreduce", "gradient", "random-ring", "d1d", "dpsgd", "easgd", "adpsgd", "hadpsgd", "asgd"]
)
def test_rank_that_skips_half_of_its_minibatches(tmp_path, name):
    """Every second minibatch of one rank is skipped, because its gradient is not finite. No rank hangs, all
    frames are counted, no other rank skips any, and the model is as good. With summed gradients, all ranks
    skip these minibatches."""
    mixing = dict(parallel=name, period_frames=32, ranks_per_node=2)
    options = with_options(
        mixing=mixing,
        schedule=dict(lr_scaling="none", num_epochs=4, learning_rate=RATES.get(name, 0.1)),
        loop=SELDOM,
    )

    def rank(comm):
        job = training(comm, tmp_path / "job", frames_of(comm, options, [6, 6, 6]), options)
        if comm.rank == 1:
            poisoned(job, range(2, 10**6, 2))
        job.run()
        return job.learner.flat.master.clone(), job.evaluate().accuracy, job.position, job.learner.num_steps

    results = run_threads(3, rank)
    half = results[1][3] // 2
    for number, (master, accuracy, position, _) in enumerate(results):
        assert torch.equal(master, results[0][0]) and accuracy > 0.8
        assert position.skipped == (half if number == 1 or name == "gradient" else 0) and half > 0
        assert position.frames_seen == results[0][2].frames_seen >= 4 * 50 * 18
        assert position.frames_seen == 4 * 50 * 18 or name in ("adpsgd", "hadpsgd", "asgd")


@pytest.mark.parametrize("name", ["allreduce", "adpsgd", "asgd"])
def test_learning_rate_falls_for_single_rank(tmp_path, name):
    """Also for schemes that normally have more ranks: the learning rate falls with every minibatch or
    mixing."""
    schedule = dict(schedule="exponential-frames", learning_rate=0.1, final_factor=0.01, num_epochs=1)
    options = with_options(
        mixing=dict(parallel=name, period_frames=16), schedule=schedule, loop=dict(checkpoint_frames=0)
    )
    job, rates = training(SoloComm(), tmp_path / "job", store(8), options), []
    step = job.learner.step
    job.learner.step = lambda x, pdfs, rate: rates.append(rate) or step(x, pdfs, rate)
    job.run()
    assert all(late < early for early, late in zip(rates, rates[1:])) and rates[-1] < 0.02 * rates[0]


@pytest.mark.parametrize("name", strategy_names())
def test_parameter_scaling_is_not_mixed_as_an_update(tmp_path, name):
    """Parameters are multiplied by 0.9 once within an epoch, with learning rate 0. Momentum does not repeat
    the change, and no centre reverts it."""
    mixing = dict(parallel=name, period_frames=32, ranks_per_node=2)
    options = with_options(mixing=mixing, schedule=dict(learning_rate=0.0, num_epochs=3))

    def rank(comm):
        changed_at = []

        def shrink(learner, frames_seen):
            changed_at.append(frames_seen)
            if len(changed_at) == 1:
                learner.flat.master.mul_(0.9)
                learner.flat.refresh()

        job = training(comm, tmp_path / "job", frames_of(comm, options, [3, 3, 3, 3]), options)
        job.growth = Growth(GrowthOptions(), DnnOptions(), np.zeros(0), 1800, 1, comm, [(350, shrink)])
        expected = 0.9 * job.learner.flat.master
        job.run()
        return job.learner.flat.master, expected, changed_at[0]

    for master, expected, changed_at in run_threads(4, rank):
        assert 350 <= changed_at < 600
        torch.testing.assert_close(master, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["allreduce", "gradient", "dpsgd", "adpsgd", "hadpsgd", "asgd"])
def test_grown_network_continues_to_learn(tmp_path, name):
    """In its only epoch, whether or not ranks wait for each other. The network does not change after the
    training ends."""
    mixing, growth = dict(parallel=name, period_frames=32, ranks_per_node=2), dict(layer_period_frames=400)
    schedule = dict(lr_scaling="none", num_epochs=1, learning_rate=RATES.get(name, 0.1))
    options = with_options(mixing=mixing, growth=growth, schedule=schedule, dnn=dict(hidden_layers=2))

    def rank(comm):
        job, spoilt_at = training(comm, tmp_path / "job", frames_of(comm, options, [12, 12, 12]), options), []

        def spoil(learner, frames_seen):
            spoilt_at.append(frames_seen)

        job.growth = Growth(options.growth, options.dnn, np.ones(5), 1800, 1, comm, [(900, spoil)])
        job.run()
        return job.learner.network.options.hidden_layers, job.evaluate().accuracy, len(spoilt_at)

    for num_layers, accuracy, num_spoilt in run_threads(3, rank):
        assert (num_layers, num_spoilt) == (2, 1) and accuracy > 0.6


@pytest.mark.parametrize("name", ["allreduce", "fixed-ring", "delayed", "dpsgd", "easgd"])
def test_keeping_models_does_not_change_training(tmp_path, name):
    """The kept models are the same on all ranks, the mean if ranks differ, and the final model is
    bit-identical to a training without them."""
    options = with_options(
        mixing=dict(parallel=name, period_frames=32), schedule=dict(learning_rate=0.05, num_epochs=2)
    )

    def rank(comm, directory, period):
        job, kept = training(comm, directory, store(3, comm.rank), options), []

        def keep(parameters, frames_seen):
            kept.append((frames_seen, vector(parameters), vector(job.learner.flat.values())))

        job.growth = Growth(
            GrowthOptions(), DnnOptions(), np.zeros(0), 1200, 1, comm, keeping=[(period, keep)]
        )
        job.run()
        return job.learner.flat.master, kept

    without = run_threads(4, lambda comm: rank(comm, tmp_path / "without", 0))
    masters, kept = zip(*run_threads(4, lambda comm: rank(comm, tmp_path / "with", 200)))
    assert all(torch.equal(master, other) for master, (other, _) in zip(masters, without, strict=True))
    assert [frames // 200 for frames, *_ in kept[0]] == [1, 2, 3, 4, 5, 6]
    for of_ranks in zip(*kept, strict=True):
        _, models, own = zip(*of_ranks)
        assert all(torch.equal(model, models[0]) for model in models)
        if name != "easgd":  # the centre of easgd follows later
            torch.testing.assert_close(models[0], torch.stack(own).mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["allreduce", "random-ring", "base2", "delayed", "dpsgd", "bmuf", "slowmo", "diloco", "easgd"]
)
def test_every_synchronous_scheme_resumes_bit_identically(tmp_path, name):
    """Also from checkpoints within epochs, where ranks have different parameters and mixings are in
    progress."""
    options = with_options(
        mixing=dict(parallel=name, period_frames=32),
        schedule=dict(lr_scaling="none", learning_rate=0.03, num_epochs=2),
        loop=dict(checkpoint_frames=150, log_frames=100),
    )

    def rank(comm, directory, crashes=False):
        job = training(comm, directory, store([5, 4, 4, 2][comm.rank], comm.rank), options)
        if crashes:
            crash_after(job, 20 - comm.rank)
        job.run()
        return job.learner.flat.master.clone()

    whole = run_threads(4, lambda comm: rank(comm, tmp_path / "whole"))
    with pytest.raises(Crash):
        run_threads(4, lambda comm: rank(comm, tmp_path / "stopped", crashes=True))
    again = run_threads(4, lambda comm: rank(comm, tmp_path / "stopped"))
    assert all(torch.equal(a, b) for a, b in zip(whole, again))
