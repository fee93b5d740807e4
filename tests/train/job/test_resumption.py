"""A job resumes with another number of ranks: nothing hangs, every epoch has its frames, and the model is as
good."""

import shutil

import numpy as np
import pytest
import torch
from toy_jobs import Crash, crash_after, metrics, shard, store, streamed, training, with_options

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.tensor.file import load_tensors
from pyasr.train.job.checkpoint_index import resume_point
from pyasr.train.job.checkpoints import frames_to_leave_out
from pyasr.train.job.trainer import Trainer

SHARDS = {1: [12], 2: [7, 5], 3: [5, 4, 3], 5: [10, 1, 1, 0, 0]}  # utterances of 50 frames
EPOCH_FRAMES = 600
ONLINE = NaturalGradientOptions("online", ng_rank_in=4, ng_rank_out=4)


def options(name="allreduce", **schedule):
    """Without dropout, because its generator is the process's, and so shared by all ranks in threads."""
    return with_options(
        mixing=dict(parallel=name, period_frames=32),
        schedule=dict(learning_rate=0.03, num_epochs=3, **schedule),
        learner=dict(momentum=0.5, natural_gradient=ONLINE),
        loop=dict(checkpoint_frames=100, log_frames=150),
    )


class Counted(Trainer):
    """Records the number of frames in the sums of each epoch."""

    def _end_epoch(self):
        total = self.comm.reduce_scalar(self.position.epoch_sums[2])
        super()._end_epoch()
        self.__dict__.setdefault("counted", []).append((int(total), self.position.frames_seen))


def run_ranks(num, directory, given, num_steps=None, frames=None):
    """Train on `num` ranks, the first of which crashes after `num_steps` minibatches. Returns (counts,
    accuracy, parameters) of each rank."""

    def rank(comm):
        job = training(
            comm,
            directory,
            (frames or (lambda comm: store(SHARDS[num][comm.rank], comm.rank)))(comm),
            given,
            Counted,
        )
        if num_steps is not None and comm.rank == 0:
            crash_after(job, num_steps)
        job.run()
        return job.counted, job.evaluate().accuracy, job.learner.flat.master.clone()

    return run_threads(num, rank)


def cut(num, directory, given, num_steps, **keywords):
    with pytest.raises(Crash):
        run_ranks(num, directory, given, num_steps, **keywords)


@pytest.mark.parametrize(
    "name, before, now",
    [
        ("allreduce", 3, 2),
        ("allreduce", 2, 5),
        ("fixed-ring", 3, 2),
        ("fixed-ring", 5, 1),
        ("d1d", 2, 5),
        ("bmuf", 2, 3),
        ("gradient", 2, 5),
    ],
)
def test_other_number_of_ranks_resumes(tmp_path, name, before, now):
    """From a checkpoint within the second epoch."""
    per_epoch = -(-50 * SHARDS[before][0] // 16)
    cut(before, tmp_path, options(name), per_epoch + per_epoch // 2 + 1)
    assert EPOCH_FRAMES < int(resume_point(tmp_path, "checkpoint").split()[1]) < 2 * EPOCH_FRAMES
    ended = run_ranks(now, tmp_path, options(name))
    counted, accuracy, master = ended[0]
    assert counted == [(EPOCH_FRAMES, 2 * EPOCH_FRAMES), (EPOCH_FRAMES, 3 * EPOCH_FRAMES)]
    assert accuracy > 0.8 and all(torch.equal(other, master) for _, _, other in ended)
    assert [line["epoch"] for line in metrics(tmp_path) if "train_objective" in line] == [1, 2, 3]


@pytest.mark.parametrize(
    "name, schedule",
    [
        ("allreduce", "newbob"),
        ("base2", "exponential-frames"),
        ("slowmo", "step"),
        ("easgd", "exponential"),
        ("post-local", "newbob-accuracy"),
        ("dpsgd", "exponential"),
    ],
)
def test_number_of_ranks_changes_several_times(tmp_path, name, schedule):
    """Three ranks, two, five, then one. The job with five is interrupted once more, and resuming with the
    same number is exact."""
    given = options(name, schedule=schedule, step_epochs="1.5" if schedule == "step" else "")
    cut(3, tmp_path / "a", given, 8)
    cut(2, tmp_path / "a", given, 15)
    cut(5, tmp_path / "a", given, 35)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    whole = run_ranks(5, tmp_path / "a", given)[0]
    cut(5, tmp_path / "b", given, 3)
    again = run_ranks(5, tmp_path / "b", given)[0]
    assert torch.equal(again[2], whole[2]) and again[0][-1] == whole[0][-1]
    assert all(frames == EPOCH_FRAMES for frames, _ in whole[0])


@pytest.mark.parametrize("before, now, num_steps", [(2, 4, 50), (4, 3, 32)])
def test_kaldi_schedule_keeps_frames_per_epoch(tmp_path, before, now, num_steps):
    """An iteration has whole frames for each learning rank, so an epoch may have up to one frame more per
    rank."""
    given = options("kaldi")

    def all_data(comm):
        return store(12)

    cut(before, tmp_path, given, num_steps, frames=all_data)
    assert EPOCH_FRAMES < int(resume_point(tmp_path, "checkpoint").split()[1]) < 2 * EPOCH_FRAMES
    counted, accuracy, _ = run_ranks(now, tmp_path, given, frames=all_data)[0]
    ends = [0, *(frames_seen for _, frames_seen in counted)]
    assert len(counted) == 2 and accuracy > 0.8
    assert 0 <= ends[1] - 2 * EPOCH_FRAMES < before + now and 0 <= ends[2] - ends[1] - EPOCH_FRAMES < now


def test_streamed_training_resumes(tmp_path):
    """The rank's first frame is within a block."""

    def frames(num):
        return lambda comm: streamed(
            shard(tmp_path / f"data{num}.{comm.rank}.{next(counter)}", 12 // num), 2, comm.rank
        )

    counter = iter(range(100))
    cut(3, tmp_path / "job", options(), 20, frames=frames(3))
    counted = run_ranks(2, tmp_path / "job", options(), frames=frames(2))[0][0]
    assert [frames for frames, _ in counted[1:]] == [2 * sum(50 + i % 3 for i in range(6))] * (
        len(counted) - 1
    )


@pytest.mark.parametrize("name", ["ring", "d1d", "easgd"])
def test_new_ranks_start_from_consensus(tmp_path, name):
    """If ranks have their own parameters, the shared part of the checkpoint has their mean, including mixings
    in progress, or the centre."""
    cut(3, tmp_path, options(name), 14)
    files = [load_tensors(path) for path in sorted((tmp_path / "checkpoint").glob("*.pt"))]
    masters = [content["own"]["master"] for content in files]
    assert len(masters) == 3 and not torch.equal(masters[0], masters[1])
    if name == "easgd":
        expected = files[0]["own"]["strategy"]["centre"]
    else:
        pending = [content["own"]["strategy"].get("pending") for content in files]
        expected = sum(own + (way["move"] if way else 0.0) for own, way in zip(masters, pending)) / 3
    torch.testing.assert_close(files[0]["shared"]["master"], expected)


def test_block_momentum_is_restored(tmp_path):
    cut(2, tmp_path, options("bmuf"), 14)
    state = load_tensors(next((tmp_path / "checkpoint").glob("*.rank-0.pt")))["own"]["strategy"]

    def rank(comm):
        job = training(comm, tmp_path, store(4, comm.rank), options("bmuf"))
        assert job._resume()
        return job.strategy.moved, job.strategy.outer, job.strategy.mixings

    for moved, outer, mixings in run_threads(3, rank):
        assert (
            moved.any()
            and torch.equal(moved, state["moved"])
            and torch.equal(outer, state["outer"])
            and mixings == 0
        )


@pytest.mark.parametrize("name", ["gradient", "allreduce"])
def test_new_ranks_get_momentum_of_first_rank(tmp_path, name):
    """With `gradient` all ranks have equal momentum, so they continue to apply the same updates."""
    cut(2, tmp_path, options(name), 14)
    before = [load_tensors(path)["own"]["learner"] for path in sorted((tmp_path / "checkpoint").glob("*.pt"))]

    def rank(comm):
        job = training(comm, tmp_path, store(4, comm.rank), options(name))
        assert job._resume()
        return job.learner.velocity, job.learner.num_steps

    assert before[0]["velocity"].any() and torch.equal(before[0]["velocity"], before[1]["velocity"]) == (
        name == "gradient"
    )
    for (velocity, num_steps), former in zip(run_threads(3, rank), [*before, before[0]], strict=True):
        assert torch.equal(velocity, former["velocity"]) and num_steps == former["num_steps"]


def test_frames_to_skip_are_split_over_ranks():
    random = np.random.default_rng(5)
    for _ in range(200):
        frames = random.integers(0, 40, random.integers(1, 9)).tolist()
        for done in {0, sum(frames) // 3, sum(frames)}:
            skipped = frames_to_leave_out(frames, done)
            assert sum(skipped) == done
            assert all(
                0 <= part <= own and abs(part * sum(frames) - own * done) < sum(frames)
                for part, own in zip(skipped, frames)
            )
    assert frames_to_leave_out([10**12, 3 * 10**12], 10**12) == [10**12 // 4, 3 * 10**12 // 4]


def test_position_of_last_checkpoint(tmp_path):
    assert resume_point(tmp_path) == resume_point(tmp_path, "rbm*/checkpoint") == "from the beginning"
    for name, frames in (("rbm1", 70), ("rbm2", 30)):
        directory = tmp_path / name / "checkpoint"
        directory.mkdir(parents=True)
        (directory / "checkpoint.json").write_text(f'{{"number": 3, "files": [], "frames_seen": {frames}}}')
    assert resume_point(tmp_path, "rbm*/checkpoint") == "from 30 frames of rbm2"
