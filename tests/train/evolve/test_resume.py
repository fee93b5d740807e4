"""Interrupted jobs end bit-identical to uninterrupted ones; checkpoints that do not fit are refused."""

import json
import multiprocessing
import signal
import stat
import time

import numpy as np
import pytest
import torch
from toy_jobs import (
    SEED,
    Crash,
    crash_after,
    metrics,
    shard,
    store,
    streamed,
    trained,
    training,
    warper,
    with_options,
)

from pyasr.base.errors import UserError
from pyasr.base.jobs.stop_request import VARIABLE, StopRequested
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.data_shard import Shard
from pyasr.train.evolve.combine import CombineOptions, RecentModels
from pyasr.train.evolve.growth import Growth, GrowthOptions
from pyasr.train.job.checkpoint_index import MODELS
from pyasr.train.job.checkpoints import load_checkpoint, save_checkpoint
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.targets.pdf_targets import Targets


def make_frames(kind, path, dtype):
    """Frames in memory, in four blocks, or warped differently in every epoch."""
    if kind == "resident":
        return store(10)
    of = shard(path, 10)
    if kind == "warped":
        of.warp_by(warper(), 0.2, 777)
    return streamed(of, 4 if kind == "streamed" else 1, dtype=dtype)


def cut(comm, directory, frames, options, num_steps):
    job = training(comm, directory, frames, options)
    crash_after(job, num_steps)
    job.run()


@pytest.mark.parametrize(
    "kind, precision, schedule",
    [
        ("resident", "bfloat16", "newbob"),
        ("streamed", "float32", "newbob"),
        ("streamed", "bfloat16", "exponential-frames"),
        ("warped", "float32", "exponential"),
    ],
)
def test_resumed_training_gives_same_bits(tmp_path, kind, precision, schedule):
    """With momentum, natural gradient and dropout; interrupted before the first checkpoint, within a block,
    between blocks and between epochs."""
    online = NaturalGradientOptions(natural_gradient="online")
    learner = dict(momentum=0.9, precision=precision, natural_gradient=online)
    rates = dict(schedule=schedule, learning_rate=0.02)
    options = with_options(learner=learner, dnn=dict(dropout=0.2), schedule=rates)
    dtype = getattr(torch, precision)
    whole = trained(SoloComm(), tmp_path / "whole", make_frames(kind, tmp_path / "data", dtype), options)
    for num_steps in (2, 17, 33, 51, 80):
        directory = tmp_path / f"cut{num_steps}"
        with pytest.raises(Crash):
            cut(
                SoloComm(),
                directory,
                make_frames(kind, tmp_path / f"data{num_steps}", dtype),
                options,
                num_steps,
            )
        torch.manual_seed(12345)
        again = trained(
            SoloComm(), directory, make_frames(kind, tmp_path / f"again{num_steps}", dtype), options
        )
        assert torch.equal(again, whole)
        of_epochs = [
            [line for line in metrics(path) if "train_objective" in line]
            for path in (directory, tmp_path / "whole")
        ]
        assert of_epochs[0] == of_epochs[1]


@pytest.mark.parametrize(
    "mixing", [{}, dict(mix_momentum=True, turns_frames=150), dict(mix_momentum=True, parallel="butterfly")]
)
def test_resumed_uneven_ranks_give_same_bits(tmp_path, mixing):
    def frames(comm):
        return store([8, 3][comm.rank], comm.rank)

    options = with_options(mixing=mixing, learner=dict(momentum=0.9 if mixing else 0.0))
    whole = run_threads(2, lambda comm: trained(comm, tmp_path / "whole", frames(comm), options))
    with pytest.raises(Crash):
        run_threads(
            2, lambda comm: cut(comm, tmp_path / "cut", frames(comm), options, 40 if comm.rank == 0 else 1000)
        )
    again = run_threads(2, lambda comm: trained(comm, tmp_path / "cut", frames(comm), options))
    assert torch.equal(again[0], whole[0]) and torch.equal(again[1], whole[0])


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_models_to_combine_belong_to_resumed_run(tmp_path, num_ranks):
    """A job that resumes with another number of ranks, or starts again, drops the models kept after the last
    checkpoint of the interrupted job."""

    def kept(comm, directory, num_steps):
        options = with_options(mixing=dict(period_frames=16), loop=dict(checkpoint_frames=300))
        job = training(comm, directory, store([8, 7, 6][comm.rank], comm.rank), options)
        recent = RecentModels(directory / MODELS, CombineOptions(combine="average"), comm)
        job.growth = Growth(
            GrowthOptions(), DnnOptions(), np.zeros(0), 0, SEED, comm, keeping=[(60, recent.keep)]
        )
        crash_after(job, num_steps)
        job.run()

    def names(directory):
        return sorted(int(path.stem) for path in (directory / MODELS).iterdir())

    for steps in (7, 17):  # before the first checkpoint, after it
        with pytest.raises(Crash):
            run_threads(2, lambda comm: kept(comm, tmp_path / "job", steps))
        at = 0 if steps == 7 else 320
        left = names(tmp_path / "job")
        assert left[-1] > at
        with pytest.raises(Crash):
            run_threads(num_ranks, lambda comm: kept(comm, tmp_path / "job", 0))
        assert names(tmp_path / "job") == [frames for frames in left if frames <= at]


ONLINE = NaturalGradientOptions("online", ng_rank_in=4, ng_rank_out=4)
KILLED = dict(
    learner=dict(momentum=0.9, max_change=2.0, natural_gradient=ONLINE),
    dnn=dict(dropout=0.2),
    schedule=dict(schedule="newbob", learning_rate=0.02, num_epochs=5),
    loop=dict(log_frames=32, checkpoint_frames=100, checkpoint_minutes=1e-3),
)


def train_streamed(data, directory):
    """Run in a process by the test below."""
    torch.set_num_threads(1)
    targets = Targets.load(data / "targets.npz")
    of = Shard(
        FeatureReader(data, InputOptions(cmvn="none")),
        targets,
        targets.keys,
        Packing(2, 2),
        Plain(torch.float32),
    )
    master = trained(SoloComm(), directory, streamed(of, 4), with_options(**KILLED))
    torch.save(master, directory / "master.pt")


def wait_for_lines(directory, number, process):
    """Wait until metrics.jsonl has `number` lines, or the process has ended."""
    path, deadline = directory / "metrics.jsonl", time.monotonic() + 60
    while process.is_alive() and time.monotonic() < deadline:
        if path.exists() and len(path.read_bytes().splitlines()) >= number:
            return
        time.sleep(0.001)


def test_resume_after_kill_gives_same_bits(tmp_path):
    """Repeated SIGKILL at random moments: in a minibatch, while a block is loaded, while a checkpoint is
    written."""
    of = shard(tmp_path / "data", 12)
    of.targets.save(tmp_path / "data" / "targets.npz")
    context, random = multiprocessing.get_context("forkserver"), np.random.default_rng(2026)
    context.set_forkserver_preload(["pyasr.train.objectives.dnn_training"])

    def start(name):
        (tmp_path / name).mkdir(exist_ok=True)
        process = context.Process(target=train_streamed, args=(tmp_path / "data", tmp_path / name))
        process.start()
        return process

    moments = np.sort(random.integers(1, 45, 8))
    for moment in moments:
        process = start("killed")
        wait_for_lines(tmp_path / "killed", moment, process)
        time.sleep(random.uniform(0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    for name in ("killed", "whole"):
        process = start(name)
        process.join()
        assert process.exitcode == 0
    assert torch.equal(*(torch.load(tmp_path / name / "master.pt") for name in ("killed", "whole")))


def test_only_last_complete_checkpoint_is_kept(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(10))
    names = sorted(path.name for path in (tmp_path / "job" / "checkpoint").iterdir())
    assert len(names) == 2 and names[1] == "checkpoint.json"


def number_of(directory):
    return json.loads((directory / "checkpoint" / "checkpoint.json").read_text())["number"]


def test_checkpoints_are_saved_by_clock(tmp_path):
    """Rank 0's clock makes both ranks save at a log line; without it there is one checkpoint per epoch."""
    for name, minutes in (("often", 1e-9), ("never", 0.0)):
        options = with_options(loop=dict(checkpoint_minutes=minutes, checkpoint_frames=0, log_frames=64))
        run_threads(2, lambda comm: trained(comm, tmp_path / name, store([8, 3][comm.rank]), options))
    assert number_of(tmp_path / "never") == 3
    assert number_of(tmp_path / "often") > 3 * 400 // 64


@pytest.mark.parametrize("period, log_frames", [(10**6, 10), (64, 10**7)])
def test_termination_request_is_obeyed_at_end_of_epoch(tmp_path, monkeypatch, period, log_frames):
    """If the epoch has a single mixing, or log lines are rare; but not in the last epoch, after which the
    model is written. The job resumes bit for bit."""
    options = with_options(
        mixing=dict(period_frames=period), loop=dict(log_frames=log_frames, checkpoint_frames=0)
    )
    whole = run_threads(2, lambda comm: trained(comm, tmp_path / "whole", store(3, comm.rank), options))
    (tmp_path / "stop").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "stop"))

    def rank(comm):
        for frames in (300, 600):
            with pytest.raises(StopRequested, match=f"saved at {frames} frames"):
                trained(comm, tmp_path / "asked", store(3, comm.rank), options)
        return trained(comm, tmp_path / "asked", store(3, comm.rank), options)

    assert all(torch.equal(master, other) for master, other in zip(run_threads(2, rank), whole))


def test_checkpoint_of_other_network_is_refused(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(4))
    sentence = (
        r"a checkpoint of another network \(layers 16x30, 5x16; this one has 20x30, 5x20\); give the "
        r"options of that network"
    )
    with pytest.raises(UserError, match=sentence):
        trained(SoloComm(), tmp_path / "job", store(4), with_options(dnn=dict(hidden_dim=20)))


def with_another_byte(content):
    """`content` with one bit of a parameter flipped."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


@pytest.mark.parametrize("name", ["*.pt", "checkpoint.json"])
@pytest.mark.parametrize(
    "damage", [with_another_byte, lambda content: content[:30], lambda content: b"", lambda content: b"{}"]
)
def test_damaged_checkpoint_is_refused(tmp_path, name, damage):
    directory = tmp_path / "checkpoint"
    save_checkpoint(directory, SoloComm(), {"master": torch.ones(5000)}, {})
    [path] = directory.glob(name)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        UserError, match="this checkpoint cannot be read .*; delete .*checkpoint to train from the start"
    ):
        load_checkpoint(directory, SoloComm())


def test_models_of_rejected_epochs_are_not_combined(tmp_path):
    """After two good epochs, the rate makes the model worse. The schedule returns to the best model, and
    models kept meanwhile are removed."""
    options = with_options(
        schedule=dict(schedule="newbob", learning_rate=0.05, num_epochs=4), mixing=dict(period_frames=16)
    )
    job = training(SoloComm(), tmp_path / "job", store(6), options)
    recent = RecentModels(tmp_path / "job" / MODELS, CombineOptions(combine="average"), SoloComm())
    job.growth = Growth(
        GrowthOptions(), DnnOptions(), np.zeros(0), 0, SEED, SoloComm(), keeping=[(60, recent.keep)]
    )
    rate = job.schedule.rate
    job.schedule.rate = lambda frames_seen: (
        rate(frames_seen) * (-0.1 if job.schedule.state.epoch == 2 else 1.0)
    )
    job.run()
    accepted = [line["accepted"] for line in metrics(tmp_path / "job") if "accepted" in line]
    assert accepted[:3] == [True, True, False]
    kept = sorted(int(path.stem) for path in (tmp_path / "job" / MODELS).iterdir())
    assert not [frames for frames in kept if 600 < frames <= 900] and [
        frames for frames in kept if 300 < frames <= 600
    ]


def test_return_to_best_model_resets_velocity(tmp_path):
    """The velocity belongs to the rejected parameters, so it is reset."""
    options = with_options(
        schedule=dict(schedule="newbob", learning_rate=0.02, num_epochs=2), learner=dict(momentum=0.9)
    )
    job = training(SoloComm(), tmp_path / "job", store(4), options)
    moving = []

    class Rejecting(type(job.schedule)):
        def end_epoch(self, loss, accuracy):
            moving.append(bool(job.learner.velocity.any()))
            super().end_epoch(loss, accuracy)
            return len(moving) > 1

    job.schedule.__class__ = Rejecting
    epoch, standing = job._epoch, []
    job._epoch = lambda number: (standing.append(not job.learner.velocity.any()), epoch(number))
    job.run()
    assert moving == [True, True] and standing == [True, True]


def test_copies_of_read_only_inputs_are_writable(tmp_path):
    """The copies must be writable. The mode is tested, because root can write to any file."""
    inputs = [tmp_path / "final.mdl", tmp_path / "tree"]
    (tmp_path / "out").mkdir()
    for path in inputs:
        path.write_text(path.name)
        path.chmod(0o444)
    for _ in range(2):
        copy_inputs(inputs, tmp_path / "out")
    for copy in (tmp_path / "out/final.mdl", tmp_path / "out/tree"):
        assert copy.read_text() == copy.name and copy.stat().st_mode & stat.S_IWUSR
