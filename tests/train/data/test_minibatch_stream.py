"""Epochs in memory, streamed in blocks, and warped; unusable features."""

import logging
import threading
import time

import numpy as np
import pytest
import torch
from toy_jobs import CPU, NUM_PDFS, SEED, shard, streamed, warper, with_options
from training_corpora import DIM, make_data

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.nn.networks.acoustic import load_model
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.data_shard import Shard, global_normaliser
from pyasr.train.data.minibatch_stream import ResidentFrames, StreamedFrames, open_frames
from pyasr.train.data.rank_data import FrameSource, StoreOptions, open_corpus
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Bytes, Plain
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.sgd.learner import LearnerOptions
from pyasr.train.targets.pdf_targets import TARGETS_FILE


def epoch_of(frames, epoch, begin=0, size=16):
    return list(frames.minibatches(size, epoch, begin))


def rows(minibatches):
    """(input, target) of every frame, sorted."""
    return sorted((*x.tolist(), pdf.item()) for inputs, pdfs in minibatches for x, pdf in zip(inputs, pdfs))


@pytest.mark.parametrize("num_blocks", [1, 2, 7])
def test_streamed_epoch_has_every_frame_once(tmp_path, num_blocks):
    of = shard(tmp_path / "data", 20)
    whole = of.store(np.arange(20), 0)
    frames = streamed(of, num_blocks)
    expected = rows([whole.gather(torch.arange(whole.num_frames))])
    epochs = [epoch_of(frames, epoch) for epoch in (1, 2, 1)]
    for found in epochs:
        assert rows(found) == expected
    assert all(torch.equal(a[0], b[0]) for a, b in zip(epochs[0], epochs[2]))
    assert not torch.equal(epochs[0][0][0], epochs[1][0][0])
    plans = [np.concatenate(frames.plan(epoch)).tolist() for epoch in (1, 2)]
    assert sorted(plans[0]) == sorted(plans[1]) == list(range(20)) and plans[0] != plans[1]


@pytest.mark.parametrize("size", [16, 100, 1000])
def test_minibatches_continue_over_block_boundaries(tmp_path, size):
    """The minibatches are those of the concatenated blocks: only the last minibatch of an epoch may be
    smaller."""
    frames = streamed(shard(tmp_path / "data", 20), 7)
    inputs, pdfs = map(torch.cat, zip(*frames.minibatches(1, 2)))
    found = list(frames.minibatches(size, 2))
    assert [len(targets) for _, targets in found[:-1]] == [size] * ((frames.num_frames - 1) // size)
    assert torch.equal(torch.cat([x for x, _ in found]), inputs) and torch.equal(
        torch.cat([targets for _, targets in found]), pdfs
    )


def test_epoch_resumes_at_every_minibatch(tmp_path):
    of = shard(tmp_path / "data", 12)
    frames = streamed(of, 4)
    whole = epoch_of(frames, 3)
    begins = np.concatenate([[0], np.cumsum([len(pdfs) for _, pdfs in whole])])
    for i, begin in enumerate(begins):
        rest = epoch_of(frames, 3, int(begin))
        assert len(rest) == len(whole) - i and all(torch.equal(a[0], b[0]) for a, b in zip(rest, whole[i:]))


def test_next_block_is_loaded_in_background(tmp_path, monkeypatch):
    """The next block is loaded before it is requested, and the block after it only when the present one is
    used up."""
    of = shard(tmp_path / "data", 12)
    frames, load, loaded = streamed(of, 4), of.store, []

    def counted(members, epoch, pinned=False):
        loaded.append((epoch, len(members)))
        return load(members, epoch, pinned)

    monkeypatch.setattr(of, "store", counted)
    ends = np.cumsum([of.lengths[members].sum() for members in frames.plan(1)])
    for seen, _ in enumerate(frames.minibatches(50, 1), 1):
        number = 1 + np.searchsorted(ends, min(50 * seen, ends[-1]))  # blocks in use so far
        deadline = time.monotonic() + 120
        while len(loaded) <= number:
            assert time.monotonic() < deadline, "it is not loaded ahead"
            time.sleep(0.01)
        time.sleep(0.03)
        assert len(loaded) == number + 1
    assert [epoch for epoch, _ in loaded] == [1, 1, 1, 1, 2]  # the last is the first block of the next epoch
    list(frames.minibatches(50, 3))
    assert {epoch for epoch, _ in loaded} == {1, 2, 3}, "there is nothing after the last epoch"


def test_sample_waits_for_running_reads(tmp_path, monkeypatch):
    """The RBMs of a DBN draw samples of the same frames one after the other. Only one thread at a time may
    read an archive."""
    of = shard(tmp_path / "data", 12)
    frames, load, reading, loaded = streamed(of, 4), of.store, threading.Lock(), []

    def alone(members, epoch, pinned=False):
        assert reading.acquire(blocking=False), "two threads read at once"
        time.sleep(0.05)
        store = load(members, epoch, pinned)
        reading.release()
        loaded.append(epoch)
        return store

    monkeypatch.setattr(of, "store", alone)
    list(frames.minibatches(50, 1))
    assert frames.sample_store(100).num_frames >= 100 and loaded == [1, 1, 1, 1, 2, 0]
    loaded.clear()
    frames.num_epochs = 2
    list(frames.minibatches(50, 2))
    frames.sample_store(100)
    assert loaded == [2, 2, 2, 0], "there is nothing after the last epoch of another training"


def test_utterances_are_warped_differently_in_every_epoch(tmp_path):
    of = shard(tmp_path / "data", 3, 0, 0)
    original = of.features("a-01")
    of.warp_by(warper(), 0.2, SEED)
    of.normalise_by(np.full(DIM, 0.5, np.float32), np.full(DIM, 2.0, np.float32))
    seen = [of.store(np.arange(3), epoch).frames for epoch in (1, 2, 1)]
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
    factor = 1 + generator(SEED, "vtlp", 1, "a-01").uniform(-0.2, 0.2)
    expected = (original @ warper().matrix(factor) - 0.5) * 2
    np.testing.assert_allclose(seen[0][50:101], expected, rtol=1e-5, atol=1e-5)
    assert isinstance(open_frames(of, CPU, torch.float32, 0, SEED, 0), StreamedFrames)


def test_small_data_stays_in_memory(tmp_path):
    of = shard(tmp_path / "data", 20, code=Bytes())
    total = int(of.num_bytes().sum())
    assert isinstance(open_frames(of, CPU, torch.float32, total, SEED, 0), ResidentFrames)
    small = open_frames(of, CPU, torch.float32, total // 2, SEED, 0)
    blocks = [of.num_bytes()[members].sum() for members in small.plan(1)]
    assert isinstance(small, StreamedFrames) and 2 * max(blocks) <= total // 2
    with pytest.raises(
        UserError,
        match=(
            r"--max-store-mb 0: too small for two blocks, since utterance a-\d+ has 5\d frames; give \d+ "
            r"or more"
        ),
    ):
        open_frames(of, CPU, torch.float32, 2 * int(of.num_bytes().max()), SEED, 0)


def test_sample_counts_frames_with_outputs(tmp_path):
    """Every third frame has an output; utterances of 50 to 52 frames have four chunks with five outputs
    each."""
    of = shard(tmp_path / "data", 20)
    of.packing = Packing(2, 2, chunk=15, subsampling=3)
    frames = StreamedFrames(of, CPU, torch.float32, 0, SEED, 0)
    assert [frames.sample_store(num).num_frames for num in (1, 100, 101, 10**6)] == [20, 100, 120, 400]


def test_rank_without_utterances(tmp_path):
    of = shard(tmp_path / "data", 4)
    none = Shard(of.reader, of.targets, [], Packing(2, 2), Plain(torch.float32))
    for frames in (
        open_frames(none, CPU, torch.float32, 1, SEED, 1),
        StreamedFrames(none, CPU, torch.float32, 1, SEED, 1),
    ):
        assert frames.num_frames == 0 and not epoch_of(frames, 1) and frames.sample_store(10).num_frames == 0


def test_more_ranks_than_utterances(tmp_path):
    """From the data directory to the model, on ranks with 500, 500, 150 and no frames."""
    lengths = {"a-0": 500, "b-0": 500, "c-0": 150, "d-0": 120}
    targets = make_data(tmp_path / "data", lengths, NUM_PDFS)
    targets.heldout[3] = True
    targets.save(tmp_path / TARGETS_FILE)
    options = with_options(learner=dict(minibatch=100))
    spec = TrainSpec(
        tmp_path / "data", tmp_path, InputOptions(cmvn="none", splice_left=1, splice_right=1), options
    )
    run_threads(4, lambda comm: train_rank(spec, comm))
    model = load_model(tmp_path / "final.nnet")
    frames = FeatureReader(tmp_path / "data", spec.input)["d-0"]
    assert (model.log_likelihoods(frames).argmax(1) == targets.pdfs_of("d-0")).mean() > 0.7


def test_normalisation_uses_all_ranks(tmp_path):
    of = shard(tmp_path / "data", 9)
    parts = [of.keys[:7], of.keys[7:], []]
    found = run_threads(3, lambda comm: global_normaliser(_part(of, parts[comm.rank]), comm))
    frames = np.vstack([of.features(key) for key in of.keys]).astype(np.float64)
    for mean, inverse_std in found:
        np.testing.assert_allclose(mean, frames.mean(0), atol=1e-6)
        np.testing.assert_allclose(inverse_std, 1 / frames.std(0), rtol=1e-5)


def test_constant_columns_are_not_scaled(tmp_path, caplog):
    of = shard(tmp_path / "data", 9)
    features, constants = of.features, np.array([1e7 / 3, 0.0], np.float32)
    of.features = lambda key: np.concatenate(
        [constants.repeat(len(features(key))).reshape(2, -1).T, features(key)[:, 2:]], 1
    )
    logging.getLogger("pyasr").propagate = True
    mean, inverse_std = global_normaliser(of, SoloComm())
    np.testing.assert_array_equal(mean[:2], constants)
    assert (
        (inverse_std[:2] == 0).all()
        and (inverse_std[2:] > 0.1).all()
        and "constant feature columns, which are ignored: 0, 1" in caplog.text
    )


def _part(of, keys):
    reader = FeatureReader(of.reader.data, InputOptions(cmvn="none"))
    return Shard(reader, of.targets, keys, Packing(), Plain(torch.float32))


def test_statistics_of_many_frames_use_some_utterances(tmp_path, monkeypatch):
    of = shard(tmp_path / "data", 9)
    monkeypatch.setattr("pyasr.train.data.data_shard._MEASURED_FRAMES", 120)
    stats = of.statistics()
    assert 120 <= stats[0, -1] <= 120 + 52
    keys = list(of.keys)
    assert not np.allclose(stats, sum(cmvn_stats(of.features(key)) for key in keys[:3]))


@pytest.mark.parametrize(
    "value, sentence",
    [
        (
            np.nan,
            (
                r"a-02 has features that are not finite \(nan in frame 7, column 3\); compute .* again, or "
                r"remove the utterance"
            ),
        ),
        (-np.inf, r"a-02 has features that are not finite \(-inf in frame 7, column 3\)"),
        ("short", "a-02 has 49 frames, utt2num_frames says 50"),
        ("narrow", "a-02 has 5 columns, other utterances have 6"),
    ],
)
def test_unusable_features_are_named(tmp_path, value, sentence):
    targets = make_data(tmp_path / "data", {f"a-{i:02d}": 50 for i in range(4)}, NUM_PDFS)
    reader = FeatureReader(tmp_path / "data", InputOptions(cmvn="none"))
    features = {key: reader[key] for key in reader.keys}
    if isinstance(value, str):
        features["a-02"] = features["a-02"][:-1] if value == "short" else features["a-02"][:, :-1]
    else:
        features["a-02"][7, 3] = value
    with ArkWriter(tmp_path / "data" / "bad.ark", tmp_path / "data" / "feats.scp") as writer:
        for key, matrix in features.items():
            writer.write(key, matrix)
    source = FrameSource(
        tmp_path / "data", InputOptions(cmvn="none"), targets, StoreOptions(), LearnerOptions(), SEED
    )
    with pytest.raises(UserError, match=sentence):
        open_corpus(source, SoloComm(), (0, 1))


def test_background_thread_errors_reach_training_loop(tmp_path, monkeypatch):
    of = shard(tmp_path / "data", 12)
    frames, read = streamed(of, 4), of.features
    bad = of.keys[frames.plan(1)[2][0]]

    def broken(key):
        if key == bad:
            raise UserError(f"{key} is broken")
        return read(key)

    monkeypatch.setattr(of, "features", broken)
    seen = []
    with pytest.raises(UserError, match=f"{bad} is broken"):
        for x, _ in frames.minibatches(50, 1):
            seen.append(len(x))
    assert sum(seen) > of.lengths[frames.plan(1)[0]].sum()  # so are the first blocks


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_blocks_are_copied_to_device(tmp_path):
    of, gpu = shard(tmp_path / "data", 12), torch.device("cuda")
    there = StreamedFrames(of, gpu, torch.float32, streamed(of, 4).max_bytes, SEED, 0)
    assert rows((x.cpu(), y.cpu()) for x, y in there.minibatches(16, 1)) == rows(epoch_of(streamed(of, 4), 1))
