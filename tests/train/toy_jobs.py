"""Small training jobs on virtual ranks."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from scheme_toys import changed_groups
from training_corpora import DIM, frames_of, make_data, random_pdfs

from pyasr.feats.compute.warp import Warper
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.options import FbankOptions, MelOptions
from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.parallel.strategies import make_strategy, mixing_options
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.minibatch_stream import ResidentFrames, StreamedFrames
from pyasr.train.job.trainer import LoopOptions, Trainer
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.objectives.dnn_training import DnnTraining, make_network
from pyasr.train.schedules import ScheduleOptions, make_schedule
from pyasr.train.sgd.carried_states import CarriedCrossEntropy
from pyasr.train.sgd.criterion import CrossEntropy
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.sgd.network_seeds import initial_random, seed_dropout

NUM_PDFS = 5
SEED = 777
CPU = torch.device("cpu")
OPTIONS = DnnTraining(
    dnn=DnnOptions(hidden_layers=1, hidden_dim=16),
    schedule=ScheduleOptions(learning_rate=0.1, num_epochs=3),
    learner=LearnerOptions(minibatch=16, precision="float32", device="cpu"),
    mixing=mixing_options(period_frames=64),
    loop=LoopOptions(log_frames=300, checkpoint_frames=200, train_seed=SEED),
)


def with_options(**groups) -> DnnTraining:
    """OPTIONS with some fields of some groups changed: with_options(loop=dict(log_frames=5))."""
    return changed_groups(OPTIONS, **groups)


def store(
    num_utterances: int, seed: int = 0, kind=FrameStore, context: int = 2, length: int = 50
) -> FrameStore:
    rng = np.random.default_rng(seed)
    pdfs = [random_pdfs(length, NUM_PDFS, rng) for _ in range(num_utterances)]
    return kind([frames_of(states, NUM_PDFS, rng) for states in pdfs], pdfs, context, context, DIM)


def warper() -> Warper:
    """A warper that treats columns as filters."""
    return Warper(FbankOptions(mel=MelOptions(num_mel_bins=DIM)))


def shard(
    path: Path, num_utterances: int, left: int = 2, right: int = 2, code=None, length: int = 50
) -> Shard:
    """The utterances of a data directory, which is created in `path`."""
    targets = make_data(path, {f"a-{i:02d}": length + i % 3 for i in range(num_utterances)}, NUM_PDFS)
    reader = FeatureReader(path, InputOptions(cmvn="none"))
    return Shard(reader, targets, targets.keys, Packing(left, right), code or Plain(torch.float32))


def streamed(
    from_shard: Shard, num_blocks: int, rank: int = 0, dtype=torch.float32, num_epochs: int = 3
) -> StreamedFrames:
    """The frames of `from_shard` in blocks."""
    sizes = from_shard.num_bytes()
    max_bytes = 2 * int(sizes.sum() / (num_blocks - 0.5) + sizes.max()) if num_blocks > 1 else 0
    frames = StreamedFrames(from_shard, CPU, dtype, max_bytes, SEED, rank)
    frames.num_epochs = num_epochs
    assert len(frames.plan(1)) == num_blocks
    return frames


def learner_of(
    options: DnnTraining, input_dim: int, comm, gradient_sum=None, num_pdfs: int = NUM_PDFS
) -> Learner:
    """A learner of the cross-entropy, as `train_rank` makes it."""
    criterion = CarriedCrossEntropy() if options.over_time.carry_state else CrossEntropy()
    seed = options.loop.train_seed
    network = make_network(options, input_dim, num_pdfs, initial_random(seed))
    seed_dropout(seed, comm.rank)
    return Learner(network, options.learner, comm.size, gradient_sum, criterion)


def training(
    comm, directory: Path, frames, options: DnnTraining = OPTIONS, kind=Trainer, tries_speed: bool = False
) -> Trainer:
    """A job on a FrameStore or on streamed frames. Unless it measures the single-rank throughput, all steps
    of its learner belong to the training."""
    dtype = options.learner.torch_dtype()
    if isinstance(frames, FrameStore):
        frames.move(CPU, dtype)
        frames = ResidentFrames(frames, options.loop.train_seed, comm.rank)
    context = frames.store.left if isinstance(frames, ResidentFrames) else frames.shard.packing.left
    strategy = make_strategy(comm, options.mixing)
    learner = learner_of(options, DIM * (2 * context + 1), comm, strategy.sum_gradients())
    heldout = store(2, 77, context=context)
    heldout.move(CPU, dtype)
    directory.mkdir(exist_ok=True)
    schedule = make_schedule(
        options.schedule, strategy.epoch_frames(frames.num_frames), options.learner.minibatch
    )
    job = kind(
        learner, frames, heldout, strategy, schedule, options.loop, options.learner.minibatch, directory
    )
    if not tries_speed:
        job.single_rank_speed = lambda: 0.0
    return job


def trained(comm, directory: Path, frames, options: DnnTraining = OPTIONS) -> torch.Tensor:
    """Final parameters."""
    job = training(comm, directory, frames, options)
    job.run()
    return job.learner.flat.master.clone()


def metrics(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def poisoned(job: Trainer, steps) -> None:
    """Set a number of the inputs to NaN in the minibatches numbered in `steps`, from 1."""
    step, count = job.learner.step, itertools.count(1)

    def poison(x, *arguments):
        if next(count) in steps:
            x = x.clone()
            x[0, 0] = float("nan")
        return step(x, *arguments)

    job.learner.step = poison


class Crash(Exception):
    pass


def crash_after(job: Trainer, num_steps: int) -> None:
    """Let the job crash in the middle of minibatch `num_steps`."""
    step, done = job.learner.step, []

    def dying(*arguments):
        done.append(1)
        if len(done) > num_steps:
            raise Crash
        return step(*arguments)

    job.learner.step = dying


@contextmanager
def power_cut(learners: type, num_steps: int):
    """A training inside this block crashes in the middle of minibatch `num_steps`, which ends the block."""
    step, done = learners.step, []

    def dying(*arguments):
        done.append(1)
        if len(done) > num_steps:
            raise Crash
        return step(*arguments)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Crash):
        patched.setattr(learners, "step", dying)
        yield
