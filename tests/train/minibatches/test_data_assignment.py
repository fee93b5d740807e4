"""Learners that draw from all data: the draws of each, of all together, and their minibatches; resumed, and
with other numbers of ranks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_jobs import CPU, NUM_PDFS, SEED, Crash, crash_after, store, training, with_options
from training_corpora import DIM, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.mixing.register import REGISTER
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import check_ranks, make_strategy, mixing_options, strategy_names
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.minibatch_stream import ResidentFrames, StreamedFrames
from pyasr.train.draws import num_drawn
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.chunks import NO_TARGET, Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.lattice_utterances import LatticeUtterances
from pyasr.train.minibatches.padded_utterances import PaddedUtterances
from pyasr.train.sgd.learner import LearnerOptions

NUM_UTTERANCES, NUM_LEARNERS, NUM_EPOCHS, SIZE = 60, 4, 40, 30
LENGTHS = np.random.default_rng(3).integers(8, 25, NUM_UTTERANCES)
PACKINGS = {"frames": Packing(1, 1), "chunks": Packing(0, 0, 5), "rows": Packing(0, 0, 5, carried=True)}
WHOLE_UTTERANCES = ("rows", "streamed frames", "streamed chunks", "streamed rows", "padded", "lattices")
KINDS = ("frames", "chunks", *WHOLE_UTTERANCES)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """(reader, targets) of utterances whose targets are the numbers of their frames."""
    path = tmp_path_factory.mktemp("numbered") / "data"
    targets = make_data(path, {f"a-{i:02d}": int(length) for i, length in enumerate(LENGTHS)}, NUM_PDFS)
    targets.pdfs = np.arange(LENGTHS.sum(), dtype=np.int32)
    return FeatureReader(path, InputOptions(cmvn="none")), targets


def frames_of(kind, numbered, draw, rank):
    """The frames from which a learner draws."""
    reader, targets = numbered
    if kind == "padded":
        return PaddedUtterances(
            reader, targets, targets.keys, LearnerOptions(minibatch=SIZE, device="cpu"), SEED, rank, draw
        )
    if kind == "lattices":
        model = SimpleNamespace(mean=torch.zeros(DIM), inverse_std=torch.ones(DIM))
        hypotheses = dict.fromkeys(targets.keys)
        options = LearnerOptions(minibatch=SIZE, device="cpu")
        return LatticeUtterances(reader, model, targets, targets.keys, hypotheses, options, SEED, rank, draw)
    of = Shard(reader, targets, targets.keys, PACKINGS[kind.split()[-1]], Plain(torch.float32))
    if not kind.startswith("streamed"):
        return ResidentFrames(of.store(np.arange(NUM_UTTERANCES), 0), SEED, rank, draw)
    return StreamedFrames(of, CPU, torch.float32, int(of.num_bytes().sum()) // 4, SEED, rank, draw)


def numbers_in(frames, minibatches) -> np.ndarray:
    """The frames that minibatches have targets for."""
    if isinstance(frames, PaddedUtterances | LatticeUtterances):
        return np.concatenate(
            [np.arange(*frames.targets.offsets[i : i + 2]) for members in minibatches for i in members]
        )
    found = torch.cat([targets.flatten() for _, targets in minibatches]).numpy()
    return found[found != NO_TARGET]


def draws_of(kind, numbered) -> tuple[np.ndarray, np.ndarray]:
    """(how often each learner draws each frame in each epoch, number of frames that it reports for the
    epoch)."""
    drawn = np.zeros((NUM_LEARNERS, NUM_EPOCHS, LENGTHS.sum()), int)
    report = np.zeros((NUM_LEARNERS, NUM_EPOCHS), int)
    for rank in range(NUM_LEARNERS):
        frames = frames_of(kind, numbered, (rank, NUM_LEARNERS), rank)
        frames.minibatch_of = lambda members: members
        for epoch in range(NUM_EPOCHS):
            np.add.at(drawn[rank, epoch], numbers_in(frames, list(frames.minibatches(SIZE, epoch + 1))), 1)
            report[rank, epoch] = frames.epoch_frames(epoch + 1)
    return drawn, report


@pytest.mark.parametrize("kind", KINDS)
def test_learners_draw_each_frame_once_per_epoch_on_average(numbered, kind):
    """Each learner draws a frame with probability 1/4, independently of other learners and other epochs, and
    never twice. So in E epochs a frame is drawn E times on average, with variance E (1 - 1/4); two learners
    have a quarter of their frames in common."""
    drawn, output = draws_of(kind, numbered)
    times, num_frames = drawn.sum((0, 1)), LENGTHS.sum()
    assert drawn.max() == 1
    if "chunks" not in kind and "rows" not in kind:  # in which frames without targets count, too
        assert (drawn.sum(2) == output).all()
    if kind == "frames":
        assert (output.sum(0) == num_frames).all()
    assert times.mean() == pytest.approx(NUM_EPOCHS, rel=0.03)
    assert np.abs(times - NUM_EPOCHS).max() < 5 * np.sqrt(0.75 * NUM_EPOCHS)
    # utterances are drawn whole
    independent = 1 if kind in ("frames", "chunks") else NUM_UTTERANCES / num_frames
    assert times.var() == pytest.approx(
        0.75 * NUM_EPOCHS, rel=6 / np.sqrt(num_frames * independent / (5 if kind == "chunks" else 1))
    )
    for one, other in ((drawn[0], drawn[1]), (drawn[2], drawn[3]), (drawn[0, :-1], drawn[0, 1:])):
        assert (one * other).sum() / one.sum() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_learner_resumes_epoch_at_every_minibatch(numbered, kind):
    frames = frames_of(kind, numbered, (1, NUM_LEARNERS), 1)
    frames.minibatch_of = lambda members: members
    whole = list(frames.minibatches(SIZE, 2))
    begins = [0]
    for minibatch in whole:
        begins.append(
            begins[-1]
            + (int(frames.lengths[minibatch].sum()) if hasattr(frames, "lengths") else minibatch[1].numel())
        )
    assert begins[-1] == frames.epoch_frames(2)
    for number, begin in enumerate(begins):
        rest = list(frames.minibatches(SIZE, 2, begin))
        assert len(rest) == len(whole) - number
        assert not rest or (numbers_in(frames, rest) == numbers_in(frames, whole[number:])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_single_learner_has_every_frame_once(numbered, kind):
    frames = frames_of(
        kind, numbered, make_strategy(SoloComm(), mixing_options(data_assignment="all")).draw, 0
    )
    frames.minibatch_of = lambda members: members
    found = np.sort(numbers_in(frames, list(frames.minibatches(SIZE, 1))))
    assert (found == np.arange(LENGTHS.sum())).all() and frames.epoch_frames(1) == frames.num_frames


def test_random_split_gives_requested_total():
    for number in (0, 1, 7, 1000):
        for num_learners in (1, 2, 3, 16):
            parts = [num_drawn(number, (k, num_learners)) for k in range(num_learners)]
            assert sum(parts) == number and max(parts) - min(parts) <= 1


def test_streaming_learner_reads_only_its_draws(numbered, monkeypatch):
    read, load = [], FeatureReader.__getitem__
    monkeypatch.setattr(
        FeatureReader, "__getitem__", lambda reader, key: read.append(key) or load(reader, key)
    )
    frames = frames_of("streamed frames", numbered, (0, NUM_LEARNERS), 0)
    frames.num_epochs = 1
    list(frames.minibatches(SIZE, 1))
    assert len(read) == len(set(read)) == NUM_UTTERANCES // NUM_LEARNERS
    sizes = frames.shard.num_bytes()
    assert len(frames.plan(1)) > 1 and all(
        2 * sizes[members].sum() <= frames.max_bytes for members in frames.plan(1)
    )
    assert f"drawn from {LENGTHS.sum()}" in frames.describe()


class Counted(Trainer):
    """Stores the number of frames in the sums of each epoch."""

    counted = ()

    def _end_epoch(self):
        self.counted += (int(self.comm.reduce_scalar(self.position.epoch_sums[2])),)
        super()._end_epoch()


def options(name, **mixing):
    return with_options(
        mixing=dict(parallel=name, period_frames=32, **mixing),
        schedule=dict(learning_rate=0.05, num_epochs=2),
        learner=dict(momentum=0.5),
        loop=dict(checkpoint_frames=150, log_frames=100),
    )


def run(num_ranks, directory, given, num_steps=None):
    """The jobs of ranks in threads that train on 600 frames, all of which each rank has."""

    def rank(comm):
        frames = store(12)
        frames.move(CPU, torch.float32)
        draw = make_strategy(comm, given.mixing).draw
        job = training(comm, directory, ResidentFrames(frames, SEED, comm.rank, draw), given, Counted)
        if num_steps and comm.rank == 0:
            crash_after(job, num_steps)
        job.run()
        job.found, job.accuracy = job.learner.flat.master.clone(), job.evaluate().accuracy
        return job

    return run_threads(num_ranks, rank)


SCHEMES = ["allreduce", "gradient", "dpsgd", "d1d", "random-ring", "bmuf"]


@pytest.mark.parametrize("name", SCHEMES)
def test_interrupted_training_gives_same_bits(tmp_path, name):
    given = options(name, data_assignment="all")
    whole = run(3, tmp_path / "whole", given)
    with pytest.raises(Crash):
        run(3, tmp_path / "again", given, num_steps=19)
    again = run(3, tmp_path / "again", given)
    assert [job.counted for job in whole] == [(600, 600)] * 3 and again[0].counted == (600,)
    assert all(torch.equal(one.found, other.found) for one, other in zip(whole, again))


def test_other_number_of_ranks_resumes(tmp_path):
    given = options("allreduce", data_assignment="all")
    with pytest.raises(Crash):
        run(3, tmp_path, given, num_steps=19)
    job = run(2, tmp_path, given)[0]
    assert job.counted == (600,) and job.position.frames_seen == 1200 and job.accuracy > 0.7


def test_single_rank_gives_same_bits(tmp_path):
    found = [
        run(1, tmp_path / str(assignment), options("allreduce", data_assignment=assignment))[0].found
        for assignment in ("all", "shards", None)
    ]
    assert torch.equal(found[0], found[1]) and torch.equal(found[1], found[2])


@pytest.mark.parametrize("name", sorted(strategy_names()))
def test_every_scheme_draws_from_all_data_on_request(name):
    num_ranks = 4

    def rank(comm):
        strategy = make_strategy(comm, mixing_options(name, data_assignment="all"))
        return strategy.share, strategy.draw

    found = run_simulated(num_ranks, rank, ClusterNetwork(0.0, 1e9))
    is_asynchronous = REGISTER[name].draws_from_all
    assert found[1:] == [((0, 1), (0, 1) if is_asynchronous else (k, num_ranks)) for k in range(1, num_ranks)]
    if is_asynchronous:
        with pytest.raises(
            UserError, match=f"--data-assignment shards: with --parallel {name} each rank draws from all data"
        ):
            check_ranks(mixing_options(name, data_assignment="shards"), num_ranks)
    else:
        usual = run_threads(num_ranks, lambda comm: make_strategy(comm, mixing_options(name)).share)
        assert usual == [(k, num_ranks) for k in range(num_ranks)]
