"""Momentum 0.9 on four virtual learners against dense loops in float64: each learner has its own velocity,
which is not mixed."""

from functools import partial

import numpy as np
import pytest
import torch
from toy_jobs import store, training, with_options

from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import ComputeTime, run_simulated
from pyasr.train.simulate.virtual_learners import LearnerRecord, VirtualTrainer

MOMENTUM, NUM_LEARNERS, NUM_EPOCHS, SIZE = 0.9, 4, 2, 16
FACTORS = {0: 1.0, 1: 1.13, 2: 1.27, 3: 1.41}  # no two learners end a minibatch at the same time
MEAN = np.full((NUM_LEARNERS, NUM_LEARNERS), 1 / NUM_LEARNERS)
RING = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3


class Watched(VirtualTrainer):
    """Records the number of its learner's minibatches at the end of each epoch."""

    ends = (0,)

    def _end_epoch(self):
        super()._end_epoch()
        self.ends += (self.learner.num_steps,)


def options(parallel):
    return with_options(
        mixing=dict(parallel=parallel),
        learner=dict(momentum=MOMENTUM),
        loop=dict(log_frames=10**9, checkpoint_frames=0),
        schedule=dict(num_epochs=NUM_EPOCHS, learning_rate=0.1, final_factor=1.0),
    )


def simulated(directory, given):
    """The jobs after training. With `adpsgd` each has all 600 frames, otherwise 300 of its own."""
    compute, draws_from_all = ComputeTime(1.0, factors=FACTORS), given.mixing.parallel == "adpsgd"

    def learner(comm):
        frames = store(12) if draws_from_all else store(6, comm.rank)
        job = training(comm, directory, frames, given, partial(Watched, compute, 0, LearnerRecord()))
        job.initial = unpadded(job)
        job.run()
        return job

    return run_simulated(NUM_LEARNERS, learner, ClusterNetwork(1e-6, 1e12))


def unpadded(job) -> np.ndarray:
    return torch.cat([value.flatten() for value in job.learner.flat.values()]).double().numpy()


class Dense:
    """The state of all learners: weights W and velocities V, float64 (4, D)."""

    def __init__(self, jobs):
        self.network = jobs[0].learner.network.double()
        self.minibatches = [job.training.minibatches for job in jobs]
        self.rate = jobs[0].schedule.step_rate(0, NUM_LEARNERS)
        self.W = np.tile(jobs[0].initial, (NUM_LEARNERS, 1))
        self.V = np.zeros_like(self.W)

    def gradient(self, weights, minibatch) -> np.ndarray:
        x, pdfs = minibatch
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), self.network.parameters())
        loss = torch.nn.functional.cross_entropy(self.network(x.double()), pdfs, reduction="sum")
        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(self.network.parameters()))]
        ).numpy()

    def move(self, k, gradient) -> np.ndarray:
        """Update learner k by its own velocity."""
        self.V[k] = MOMENTUM * self.V[k] - self.rate * gradient
        return (1 - MOMENTUM) * self.V[k]

    def in_rounds(self, mixing, sums_gradients: bool) -> np.ndarray:
        """W <- mixing W + updates computed at W. An epoch ends with the mean of the learners."""
        for epoch in range(1, NUM_EPOCHS + 1):
            for minibatches in zip(*(list(frames(SIZE, epoch)) for frames in self.minibatches), strict=True):
                gradients = np.array([self.gradient(*pair) for pair in zip(self.W, minibatches)])
                if sums_gradients:
                    gradients[:] = gradients.mean(0)
                self.W = mixing @ self.W + np.array([self.move(k, gradients[k]) for k in range(NUM_LEARNERS)])
            self.W[:] = self.W.mean(0)
        return self.W[0]

    def in_pairs(self, ends) -> np.ndarray:
        """Learner k ends its n-th minibatch of an epoch at time n FACTORS[k]. A learner with an odd number
        then averages alternately with its left and right neighbour."""
        turns = np.zeros(NUM_LEARNERS, int)
        for epoch in range(1, NUM_EPOCHS + 1):
            given, minibatches = self.W.copy(), [frames(SIZE, epoch) for frames in self.minibatches]
            events = [
                (n * FACTORS[k], k)
                for k in range(NUM_LEARNERS)
                for n in range(1, 1 + ends[k][epoch] - ends[k][epoch - 1])
            ]
            for _, k in sorted(events):
                self.W[k] += self.move(k, self.gradient(given[k], next(minibatches[k])))
                given[k] = self.W[k]
                if k % 2:
                    other = (k + (1 if turns[k] % 2 else -1)) % NUM_LEARNERS
                    self.W[k] = self.W[other] = (self.W[k] + self.W[other]) / 2
                    turns[k] += 1
            self.W[:] = self.W.mean(0)
        return self.W[0]


@pytest.mark.parametrize("parallel", ["gradient", "d1d", "dpsgd", "adpsgd"])
def test_velocities_equal_dense_loops(tmp_path, parallel):
    jobs = simulated(tmp_path / "job", options(parallel))
    found, velocities = unpadded(jobs[0]), [job.learner.velocity for job in jobs]
    dense = Dense(jobs)
    if parallel == "adpsgd":
        expected = dense.in_pairs([job.ends for job in jobs])
    else:
        expected = dense.in_rounds(
            RING if parallel == "dpsgd" else MEAN, sums_gradients=parallel == "gradient"
        )
    moved = np.linalg.norm(expected - jobs[0].initial)
    assert np.linalg.norm(found - expected) < 1e-4 * moved and moved > 1
    for k, velocity in enumerate(velocities):
        assert np.linalg.norm(
            velocity[velocity != 0].double().numpy() - dense.V[k][dense.V[k] != 0]
        ) < 1e-3 * np.linalg.norm(dense.V[k])
    assert torch.equal(velocities[0], velocities[1]) == (parallel == "gradient")
