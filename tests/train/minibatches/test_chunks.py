"""Chunks of utterances with context: every frame is learned once, at its position, for all lengths."""

import numpy as np
import pytest
import torch

from pyasr.train.data.minibatch_stream import ResidentFrames
from pyasr.train.minibatches.chunks import NO_TARGET, ChunkStore, Packing
from pyasr.train.minibatches.feature_codec import Plain

DIM = 3
LENGTHS = [1, 4, 5, 6, 13, 20, 3]
CODE = Plain(torch.float32)


def utterances(lengths=LENGTHS):
    """Features that identify utterance and frame; targets that number all frames."""
    features = [
        np.stack([np.full(n, u), np.arange(n), np.ones(n)], 1).astype(np.float32)
        for u, n in enumerate(lengths)
    ]
    ends = np.cumsum(lengths)
    return features, [np.arange(end - n, end) for n, end in zip(lengths, ends)]


def store_of(packing, lengths=LENGTHS) -> ChunkStore:
    features, targets = utterances(lengths)
    return packing.store(iter(features), targets, DIM, CODE, False)


@pytest.mark.parametrize(
    "chunk, left, right, subsampling",
    [(5, 0, 0, 1), (5, 2, 3, 1), (1, 1, 1, 1), (6, 2, 1, 3), (7, 0, 4, 3), (50, 3, 3, 1)],
)
def test_every_frame_is_a_target_once_with_its_context(chunk, left, right, subsampling):
    packing = Packing(left, right, chunk, subsampling)
    store = store_of(packing)
    x, targets = store.gather(torch.arange(store.num_items))
    features, numbers = utterances()
    assert x.shape == (store.num_items, left + chunk + right, DIM) and targets.shape == (
        store.num_items,
        packing.item_frames,
    )
    assert store.num_frames == targets.numel() == packing.num_frames(np.array(LENGTHS)).sum()
    seen = []
    for row, found in zip(x.numpy(), targets.numpy()):
        for place, number in enumerate(found):
            if number == NO_TARGET:
                continue
            seen.append(number)
            utterance = next(u for u, members in enumerate(numbers) if number in members)
            t = number - numbers[utterance][0]
            context = np.clip(np.arange(t - left, t + right + 1), 0, LENGTHS[utterance] - 1)
            begin = place * subsampling
            np.testing.assert_array_equal(row[begin : begin + left + 1 + right], features[utterance][context])
    if subsampling == 1:
        assert sorted(seen) == list(range(sum(LENGTHS)))
    else:
        assert len(seen) == len(set(seen)) and all(
            first in seen for members in numbers for first in members[:1]
        )


@pytest.mark.parametrize("packing", [Packing(1, 1), Packing(1, 1, 5), Packing(1, 1, 5, carried=True)])
def test_moved_tensors_are_listed_for_stream_recording(packing):
    """A tensor that is created on one stream and used on another must be recorded there."""
    store = store_of(packing)
    of_class = [value for value in vars(store).values() if isinstance(value, torch.Tensor)]
    assert sorted(map(id, of_class)) == sorted(map(id, store.tensors()))


def test_features_and_targets_are_time_first():
    x, _ = store_of(Packing(1, 1, 5)).gather(torch.tensor([3, 0, 2]))
    assert x.transpose(0, 1).is_contiguous()


def test_minibatches_have_one_size_and_cover_all(tmp_path):
    store = store_of(Packing(1, 1, 5))
    frames = ResidentFrames(store, seed=1, rank=0)
    found = list(frames.minibatches(20, epoch=1))
    assert [pdfs.numel() for _, pdfs in found[:-1]] == [20] * (len(found) - 1)
    known = torch.cat([pdfs.flatten() for _, pdfs in found])
    assert sorted(known[known != NO_TARGET].tolist()) == list(range(sum(LENGTHS)))
    again = list(frames.minibatches(20, epoch=1, begin=20))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(again, found[1:], strict=True))


def test_empty_utterances_have_no_chunks():
    store = store_of(Packing(1, 1, 5), [0, 7, 0])
    x, targets = store.gather(torch.arange(store.num_items))
    assert store.num_items == 2 and set(x[:, :, 0].unique().tolist()) == {1.0}
    assert sorted(targets[targets != NO_TARGET].tolist()) == list(range(7))


def test_memory_equals_estimate():
    packing = Packing(2, 3, 5)
    store = store_of(packing)
    used = store.frames.nbytes
    assert (
        used
        <= packing.num_bytes(np.array(LENGTHS), DIM, CODE).sum()
        <= used + 20 * (sum(LENGTHS) + 5 * len(LENGTHS))
    )
