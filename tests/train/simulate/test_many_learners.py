"""Real training of a small network by 64 and 128 virtual learners: every mixing conserves the mean, and the
result is one model."""

from functools import partial

import numpy as np
import pytest
import torch
from toy_jobs import store, training, with_options

from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import ComputeTime, run_simulated
from pyasr.train.simulate.virtual_learners import LearnerRecord, VirtualTrainer

NUM_MIXINGS = 2 * 4  # two epochs of 50 frames per learner, minibatches of 16


def trained(directory, name, num_learners):
    """For each learner: final parameters, course, and parameters before and after each mixing, (mixings, 2,
    dim)."""
    options = with_options(
        mixing=dict(parallel=name, period_frames=16),
        loop=dict(log_frames=10**9),
        schedule=dict(lr_scaling="none", learning_rate=0.3, num_epochs=2),
    )

    def learner(comm):
        course, seen = LearnerRecord(), []
        job = training(
            comm,
            directory,
            store(1, comm.rank),
            options,
            partial(VirtualTrainer, ComputeTime(0.1, 0.3), 0, course),
        )
        mix = job.strategy.mix

        def watched(master, *arguments):
            before = master.double().numpy()
            mix(master, *arguments)
            seen.append((before, master.double().numpy()))

        job.strategy.mix = watched
        job.run()
        return job.learner.flat.master.clone(), course, np.array(seen)

    return run_simulated(num_learners, learner, ClusterNetwork(1e-4, 1e9))


@pytest.mark.parametrize("name, num_learners", [("allreduce", 64), ("exponential", 64), ("random-ring", 128)])
def test_many_learners_conserve_mean(tmp_path, name, num_learners):
    """Learners drift apart. Mixings conserve their mean; all-reduce makes them equal at once, gossip moves
    them closer. At the end all have the same model, which has learned."""
    results = trained(tmp_path / "job", name, num_learners)
    masters, courses, seen = zip(*results)
    assert all(torch.equal(master, masters[0]) for master in masters)
    before, after = np.stack(seen).transpose(2, 1, 0, 3)  # (mixings, learners, dim)
    assert len(before) == NUM_MIXINGS
    np.testing.assert_allclose(after.mean(1), before.mean(1), atol=1e-6)
    apart, still_apart = (np.linalg.norm(x - x.mean(1, keepdims=True), axis=(1, 2)) for x in (before, after))
    assert (
        (apart > 1e-3).all()
        and ((still_apart < 1e-5) == (name == "allreduce")).all()
        and (still_apart < 0.8 * apart).all()
    )
    (_, first, _), *_, (_, last, accuracy) = courses[0].history
    assert last > 0.8 * first and accuracy > 0.6
