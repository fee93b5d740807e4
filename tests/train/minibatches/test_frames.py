"""Frames in memory against plain matrices: splicing, types, indices."""

import numpy as np
import pytest
import torch
from training_corpora import DIM, frames_of, random_pdfs

from pyasr.feats.deltas import splice
from pyasr.io.ark import ArkWriter, load_all
from pyasr.train.minibatches.feature_codec import Bytes, Plain, byte_values, make_code
from pyasr.train.minibatches.frames import FrameStore, store_bytes

LEFT, RIGHT = 3, 2


def utterances(lengths=(4, 1, 30), seed=5):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, DIM)).astype(np.float32) for length in lengths]


def make_store(features, code=None):
    return FrameStore((x for x in features), [np.arange(len(x)) for x in features], LEFT, RIGHT, DIM, code)


def spliced(features):
    return torch.from_numpy(np.vstack([splice(x, LEFT, RIGHT) for x in features]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_splicing_by_index_equals_spliced_matrices(dtype):
    features = utterances()
    frames = make_store(features)
    frames.move(torch.device("cpu"), dtype)
    inputs, targets = frames.gather(torch.arange(frames.num_frames))
    assert torch.equal(inputs, spliced(features).to(dtype)) and targets.dtype == torch.int64
    np.testing.assert_array_equal(targets.numpy(), [*range(4), 0, *range(30)])


@pytest.mark.parametrize("left, right", [(0, 0), (3, 2)])
def test_utterances_without_frames_are_skipped(left, right):
    features = utterances((0, 4, 0))
    frames = FrameStore(iter(features), [np.arange(len(x)) for x in features], left, right, DIM)
    inputs, targets = frames.gather(torch.arange(frames.num_frames))
    assert torch.equal(inputs, torch.from_numpy(splice(features[1], left, right))) and targets.tolist() == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    "name, largest, mean",
    [
        ("float32", 0.0, 0.0),
        ("float16", 2e-3, 3e-4),
        ("bfloat16", 1.6e-2, 2e-3),
        ("byte", 0.12, 0.012),
        ("auto", 1.6e-2, 2e-3),
    ],
)
def test_storage_types_have_documented_errors(name, largest, mean):
    """The errors stated in docs/networks/training_data.md, in standard deviations; inputs are float32 for all
    storage types."""
    features = utterances((5000,))
    code = make_code(name, torch.bfloat16)
    frames = make_store(features, code)
    frames.move(torch.device("cpu"), torch.float32)
    inputs, _ = frames.gather(torch.arange(5000))
    error = inputs - spliced(features)
    assert inputs.dtype == torch.float32 and frames.frames.dtype == code.stored
    assert error.abs().max() <= largest and error.square().mean().sqrt() <= mean


def test_byte_codec_rounds_and_clips():
    """Bytes have distinct values, numbers are rounded to the nearest byte, 0 is exact, and large numbers are
    clipped."""
    values = byte_values()[:255]
    assert (values.diff() > 0).all() and values[127] == 0 and values[254] == pytest.approx(16)
    code = Bytes()
    assert torch.equal(code.encode(values), torch.arange(255, dtype=torch.uint8))
    x = torch.tensor([[-100.0, 0.0, 0.3, 100.0]])
    decoded = code.decode(code.encode(x), torch.bfloat16)
    assert decoded.dtype == torch.bfloat16 and decoded.tolist()[0] == [
        -16.0,
        0.0,
        pytest.approx(0.3, abs=0.01),
        16.0,
    ]


def test_byte_codec_is_close_to_kaldi(tmp_path):
    """Kaldi's format of one byte per number has a header for each utterance and column; pyasr's has none."""
    features = {f"u{i}": x for i, x in enumerate(utterances((300,) * 20))}
    with ArkWriter(tmp_path / "c.ark", tmp_path / "c.scp", compress="speech") as writer:
        for key, x in features.items():
            writer.write(key, x)
    theirs = np.concatenate([(x - load_all(tmp_path / "c.scp")[key]).ravel() for key, x in features.items()])
    x = torch.from_numpy(np.vstack(list(features.values())))
    ours = Bytes().decode(Bytes().encode(x), torch.float32) - x
    assert ours.square().mean().sqrt() < 1.5 * np.sqrt(np.mean(theirs**2))


def test_shuffled_minibatches_have_each_frame_once():
    rng = np.random.default_rng(1)
    pdfs = [random_pdfs(length, 4, rng) for length in (7, 20)]
    frames = FrameStore([frames_of(p, 4, rng) for p in pdfs], pdfs, 0, 0, DIM)
    found = list(frames.shuffled(8, 0, 777, 3))
    assert [len(y) for _, y in found] == [8, 8, 8, 3]
    order = frames.epoch_order(777, 3)
    assert sorted(order.tolist()) == list(range(27))
    assert torch.equal(torch.cat([x for x, _ in found]), frames.frames[order.long()])
    rest = list(frames.shuffled(8, 16, 777, 3))
    assert torch.equal(torch.cat([y for _, y in rest]), torch.cat([y for _, y in found[2:]]))
    assert not torch.equal(frames.epoch_order(777, 4), order) and not torch.equal(
        frames.epoch_order(777, 3, 1), order
    )


def test_store_without_frames():
    frames = FrameStore([], [], LEFT, RIGHT, DIM)
    frames.move(torch.device("cpu"), torch.bfloat16)
    assert frames.num_frames == 0 and not list(frames.shuffled(8, 0, 1, 1)) and not list(frames.in_turn(8))


@pytest.mark.parametrize("code", [Plain(torch.bfloat16), Bytes()])
def test_bytes_of_store_are_counted(code):
    """The bytes counted for --max-store-mb are those used, the order of an epoch included."""
    frames = make_store(utterances((50, 70)), code)
    used = sum(tensor.nbytes for tensor in frames.tensors()) - frames._window.nbytes + 4 * frames.num_frames
    assert used == store_bytes(np.array([50, 70]), LEFT, RIGHT, DIM, code).sum()
