"""The training loop on virtual ranks: equality with larger batches, uneven shards, exact resumption."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from corpora import DIM, frames_of, random_pdfs

from pyasr.base.errors import UserError
from pyasr.base.seeds import generator
from pyasr.feats.options import FbankOptions, MelOptions
from pyasr.feats.warp import Warper
from pyasr.nn.feed_forward import DnnOptions
from pyasr.parallel.comm import SoloComm, run_threads
from pyasr.parallel.strategies import MixingOptions, make_strategy
from pyasr.train.dnn import DnnTraining, make_learner
from pyasr.train.frames import FrameStore
from pyasr.train.learner import LearnerOptions
from pyasr.train.loop import LoopOptions, Training
from pyasr.train.schedules import ScheduleOptions, make_schedule

NUM_PDFS = 5
OPTIONS = DnnTraining(
    dnn=DnnOptions(hidden_layers=1, hidden_dim=16),
    schedule=ScheduleOptions(learning_rate=0.1, num_epochs=3),
    learner=LearnerOptions(minibatch=16, precision="float32", device="cpu"),
    mixing=MixingOptions(period_frames=64),
    loop=LoopOptions(log_frames=300, checkpoint_frames=200),
)


class FixedOrderStore(FrameStore):
    """Frames in the order of the store."""

    def epoch_order(self, seed, epoch, rank):
        return torch.arange(self.num_frames)


def store(num_utterances, seed=0, kind=FrameStore, context=2, length=50):
    rng = np.random.default_rng(seed)
    pdfs = [random_pdfs(length, NUM_PDFS, rng) for _ in range(num_utterances)]
    return kind([frames_of(states, NUM_PDFS, rng) for states in pdfs], pdfs, context, context, DIM)


def training(comm, directory, frames, options=OPTIONS):
    learner = make_learner(options, DIM * (frames.left + 1 + frames.right), NUM_PDFS, comm)
    heldout = store(2, 77, context=frames.left)
    for one in (frames, heldout):
        one.move(torch.device("cpu"), options.learner.torch_dtype())
    directory.mkdir(exist_ok=True)
    schedule = make_schedule(options.schedule, int(comm.reduce_scalar(frames.num_frames)))
    rate_factor = options.schedule.rate_factor(comm.size, options.learner.minibatch)
    return Training(learner, frames, heldout, make_strategy(comm, options.mixing), schedule, comm, options.loop,
                    options.learner.minibatch, rate_factor, directory)  # fmt: skip


def trained(comm, directory, frames, options=OPTIONS):
    job = training(comm, directory, frames, options)
    job.run()
    return job.learner.flat.master.clone()


def with_options(**groups):
    """OPTIONS with some fields of some groups changed: with_options(loop=dict(log_frames=5))."""
    return dataclasses.replace(OPTIONS, **{name: dataclasses.replace(getattr(OPTIONS, name), **fields) for name, fields in groups.items()})


def test_splicing_by_gather_equals_splicing_of_matrices():
    from pyasr.feats.deltas import splice

    rng = np.random.default_rng(5)
    features = [rng.standard_normal((n, DIM)).astype(np.float32) for n in (4, 1, 30)]
    frames = FrameStore(features, [np.arange(len(x)) for x in features], 3, 2, DIM)
    inputs, targets = frames.gather(torch.arange(frames.num_frames))
    np.testing.assert_array_equal(inputs.numpy(), np.vstack([splice(x, 3, 2) for x in features]))
    np.testing.assert_array_equal(targets.numpy(), [*range(4), 0, *range(30)])


@pytest.mark.parametrize("convention, scaling", [("mean", "none"), ("sum", "linear")])
def test_two_ranks_mixing_every_minibatch_equal_one_with_twice_the_batch(tmp_path, convention, scaling):
    """Averaged over minibatches, the mean of two ranks' updates is the update by the mean gradient of both. By sums, with the rate
    times 2, it is the update by the summed gradient."""
    whole = store(8, kind=FixedOrderStore, context=0, length=32)
    blocks = np.arange(whole.num_frames).reshape(-1, 2, 16)  # minibatch, rank, frame
    halves = []
    for rank in range(2):
        index = blocks[:, rank].ravel()
        halves.append(FixedOrderStore([whole.frames.numpy()[index]], [whole.targets.numpy()[index]], 0, 0, DIM))
    schedule = dict(lr_convention=convention, lr_scaling=scaling, learning_rate=0.1 if convention == "mean" else 0.005)
    two = with_options(schedule=schedule, mixing=dict(period_frames=1))
    one = with_options(schedule=schedule, mixing=dict(period_frames=1), learner=dict(minibatch=32))
    masters = run_threads(2, lambda comm: trained(comm, tmp_path / "two", halves[comm.rank], two))
    assert torch.equal(masters[0], masters[1])
    single = trained(SoloComm(), tmp_path / "one", whole, one)
    torch.testing.assert_close(masters[0], single, atol=1e-6, rtol=0)


def test_uneven_shards_end_together_and_learn(tmp_path):
    sizes = [10, 10, 3, 0]

    def rank(comm):
        job = training(comm, tmp_path / "job", store(sizes[comm.rank], comm.rank))
        job.run()
        return job.learner.flat.master.clone(), job.evaluate(), job.position.frames_seen

    results = run_threads(4, rank)
    for master, totals, frames_seen in results:
        assert torch.equal(master, results[0][0])
        assert frames_seen == 3 * 50 * sum(sizes)
        assert totals.accuracy > 0.8 and totals.sums[2] == 4 * 100


def metrics(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


class Crash(Exception):
    pass


def crash_after(job, num_steps):
    """Let the job die in the middle of minibatch `num_steps`."""
    step, done = job.learner.step, []

    def dying(*arguments):
        done.append(1)
        if len(done) > num_steps:
            raise Crash
        return step(*arguments)

    job.learner.step = dying


def warped(frames):
    """The same store with utterance names and warping, for which its columns are taken as filters."""
    frames.keys = [f"utt{i}" for i in range(len(frames.offsets) - 1)]
    mel = MelOptions(num_mel_bins=DIM)
    frames.warp_by(Warper(FbankOptions(mel=mel)), 0.2)
    frames.normalise(np.zeros(DIM, np.float32), np.ones(DIM, np.float32))
    return frames


def test_utterances_are_warped_anew_in_every_epoch():
    frames = warped(store(3))
    original = frames.frames.clone()
    seen = []
    for epoch in (1, 2, 1):
        frames.begin_epoch(777, epoch)
        seen.append(frames.frames.clone())
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
    factor = 1 + generator(777, "vtlp", 1, "utt1").uniform(-0.2, 0.2)
    matrix = torch.from_numpy(Warper(FbankOptions(mel=MelOptions(num_mel_bins=DIM))).matrix(factor))
    begin, end = frames.offsets[1:3]
    torch.testing.assert_close(seen[0][begin:end], original[begin:end] @ matrix)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("schedule", ["exponential", "newbob"])
@pytest.mark.parametrize("num_steps", [2, 30, 51, 80])
def test_resumed_training_ends_in_the_same_bits(tmp_path, precision, schedule, num_steps):
    """With momentum, dropout and warping, interrupted before the first checkpoint, within an epoch, and between epochs."""
    learner, rates = dict(momentum=0.9, precision=precision), dict(schedule=schedule, learning_rate=0.02)
    options = with_options(learner=learner, dnn=dict(dropout=0.2), schedule=rates)
    whole = trained(SoloComm(), tmp_path / "whole", warped(store(10)), options)
    job = training(SoloComm(), tmp_path / "cut", warped(store(10)), options)
    crash_after(job, num_steps)
    with pytest.raises(Crash):
        job.run()
    torch.manual_seed(12345)
    again = training(SoloComm(), tmp_path / "cut", warped(store(10)), options)
    again.run()
    assert torch.equal(again.learner.flat.master, whole)
    whole_epochs, epochs = ([line for line in metrics(tmp_path / name) if "train_objective" in line] for name in ("whole", "cut"))
    assert epochs == whole_epochs


def test_resumed_uneven_ranks_end_in_the_same_bits(tmp_path):
    frames = [store(8, 0), store(3, 1)]
    whole = run_threads(2, lambda comm: trained(comm, tmp_path / "whole", store([8, 3][comm.rank], comm.rank)))

    def cut(comm):
        job = training(comm, tmp_path / "cut", frames[comm.rank])
        crash_after(job, 40 if comm.rank == 0 else 1000)
        job.run()

    with pytest.raises(Crash):
        run_threads(2, cut)
    again = run_threads(2, lambda comm: trained(comm, tmp_path / "cut", frames[comm.rank]))
    assert torch.equal(again[0], whole[0]) and torch.equal(again[1], whole[0])


def test_only_the_last_complete_checkpoint_is_kept(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(10))
    names = sorted(path.name for path in (tmp_path / "job" / "checkpoint").iterdir())
    assert len(names) == 2 and names[1] == "checkpoint.json"


def test_checkpoint_of_another_number_of_ranks(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(4))
    with pytest.raises(UserError, match="a checkpoint of 1 ranks, now there are 2; give --num-ranks 1"):
        run_threads(2, lambda comm: trained(comm, tmp_path / "job", store(2, comm.rank)))


def test_damaged_checkpoint(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(4))
    [path] = (tmp_path / "job" / "checkpoint").glob("*.pt")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="this checkpoint cannot be read"):
        trained(SoloComm(), tmp_path / "job", store(4))


def test_divergence_is_told(tmp_path):
    options = with_options(schedule=dict(learning_rate=1e6))
    with pytest.raises(UserError, match="training has diverged.*lower --learning-rate"):
        trained(SoloComm(), tmp_path / "job", store(6), options)
