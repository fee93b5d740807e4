"""Asynchronous schemes synchronise within epochs and save checkpoints. Jobs resume from them, bit for bit in
virtual time, or with another number of ranks."""

import pytest
import torch
from toy_jobs import Crash, crash_after, store, training, with_options

from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy
from pyasr.train.job.checkpoint_index import resume_point
from pyasr.train.job.trainer import Trainer

EPOCH_FRAMES, MINIBATCH = 1200, 16
NETWORK = ClusterNetwork(latency_s=1e-4, bandwidth=1e7, ranks_per_host=2)
SCHEMES = {
    "adpsgd": dict(parallel="adpsgd"),
    "adpsgd-random-ring": dict(parallel="adpsgd", topology="random-ring"),
    "hadpsgd": dict(parallel="hadpsgd", ranks_per_node=2),
    "asgd": dict(parallel="asgd"),
}
RANDOM = dict(parallel="adpsgd", random_peers=True)
NODES_IN_TURN = dict(parallel="hadpsgd", ranks_per_node=2, topology="exponential")


class Watched(Trainer):
    """Takes virtual time. Records when it saved, and the frames that each epoch had seen."""

    saved, counted = (), ()

    def _learn(self, x, pdfs):
        self.comm.sleep(0.01 * (1 + 0.1 * self.comm.rank))
        return super()._learn(x, pdfs)

    def _save(self, equal):
        assert equal
        self.saved += (self.position.frames_seen,)
        super()._save(equal)

    def _end_epoch(self):
        began, total = self.position.epoch_began, self.comm.reduce_scalar(self.position.epoch_sums[2])
        super()._end_epoch()
        self.counted += ((int(total), self.position.frames_seen - began),)


def options(mixing, **loop):
    return with_options(
        mixing=mixing,
        schedule=dict(lr_scaling="none", learning_rate=0.05, num_epochs=3),
        learner=dict(momentum=0.5),
        loop=dict(checkpoint_frames=300, log_frames=200) | loop,
    )


def run(how, num_ranks, directory, given, num_steps=None):
    """Train with `how`; the last rank crashes after `num_steps` minibatches. Returns the jobs and their
    parameters."""

    def rank(comm):
        share = make_strategy(comm, given.mixing).share
        job = training(comm, directory, store(24 if share else 0), given, Watched)
        if num_steps and comm.rank == comm.size - 1:
            crash_after(job, num_steps)
        job.run()
        job.accuracy = job.evaluate().accuracy
        return job, job.learner.flat.master.clone()

    return how(num_ranks, rank)


def simulated(num_ranks, rank):
    return run_simulated(num_ranks, rank, NETWORK)


@pytest.mark.parametrize(
    "mixing",
    [*SCHEMES.values(), RANDOM, NODES_IN_TURN],
    ids=[*SCHEMES, "adpsgd-random", "hadpsgd-exponential"],
)
def test_resume_is_bit_identical_in_virtual_time(tmp_path, mixing):
    """The training is interrupted twice within an epoch. It resumes from checkpoints within epochs."""
    whole = run(simulated, 4, tmp_path / "whole", options(mixing))
    job = whole[0][0]
    ends = {sum(seen for _, seen in job.counted[: i + 1]) for i in range(3)}
    assert len(job.saved) >= 3 * 3 and set(job.saved) >= ends
    assert all(
        total == seen and EPOCH_FRAMES <= seen < EPOCH_FRAMES + 8 * MINIBATCH for total, seen in job.counted
    )
    for num_steps in (15, 16):
        with pytest.raises(Crash):
            run(simulated, 4, tmp_path / "cut", options(mixing), num_steps)
        frames = int(resume_point(tmp_path / "cut").split()[1])
        assert frames in set(job.saved) - ends
    again = run(simulated, 4, tmp_path / "cut", options(mixing))
    for (before, master), (after, resumed) in zip(whole, again):
        assert torch.equal(master, resumed)
        assert after.saved == before.saved[-len(after.saved) :]


@pytest.mark.parametrize("mixing", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("before, now", [(4, 3), (3, 5)])
def test_resume_with_other_number_of_ranks(tmp_path, mixing, before, now):
    """Interrupted within the first epoch, then again with the new number of ranks: epochs have their frames,
    and the model is as good."""
    for num_ranks in (before, now):
        with pytest.raises(Crash):
            run(run_threads, num_ranks, tmp_path / "cut", options(mixing), 15)
        assert int(resume_point(tmp_path / "cut").split()[1]) > 0
    jobs = run(run_threads, now, tmp_path / "cut", options(mixing))
    job = jobs[0][0]
    assert all(
        total == seen and EPOCH_FRAMES <= seen < EPOCH_FRAMES + 8 * now * MINIBATCH
        for total, seen in job.counted
    )
    whole = run(run_threads, now, tmp_path / "whole", options(mixing))[0][0]
    assert job.accuracy > whole.accuracy - 0.1
    assert all(torch.equal(master, jobs[0][1]) for _, master in jobs)


@pytest.mark.parametrize("mixing", SCHEMES.values(), ids=SCHEMES)
def test_first_rank_with_due_clock_starts_checkpoint(tmp_path, mixing):
    """The first rank whose clock is due makes all ranks save a checkpoint; without clocks there is one
    checkpoint per epoch."""
    for minutes in (0.0, 1e-9):
        jobs = run(
            run_threads,
            4,
            tmp_path / f"{minutes}",
            options(mixing, checkpoint_minutes=minutes, checkpoint_frames=0),
        )
        assert len({job.saved for job, _ in jobs}) == 1
        assert len(jobs[0][0].saved) == 3 if minutes == 0 else len(jobs[0][0].saved) > 9
