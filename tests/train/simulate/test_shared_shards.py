"""Learners that share a process read each utterance once. Their results are bit-identical to those with their
own shards."""

from collections import Counter

import numpy as np
import pytest
import torch
from toy_jobs import NUM_PDFS, with_options
from training_corpora import make_data

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.networks.acoustic import MODEL_FILE
from pyasr.train.data.data_shard import Shard
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.simulate import virtual_learners
from pyasr.train.simulate.shared_shards import SharedShards
from pyasr.train.targets.pdf_targets import TARGETS_FILE

INPUT = InputOptions(cmvn="none", splice_left=2, splice_right=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", {f"a-{i:02d}": 40 + i for i in range(24)}, NUM_PDFS)
    targets.heldout[::6] = True
    return path, targets


def simulated(corpus, out, scheme: str, **mixing):
    path, targets = corpus
    out.mkdir()
    targets.save(out / TARGETS_FILE)
    training = with_options(
        mixing=dict(parallel=scheme, period_frames=64, **mixing),
        loop=dict(log_frames=10**9),
        schedule=dict(num_epochs=2),
    )
    course = virtual_learners.simulate(
        TrainSpec(path / "data", out, INPUT, training), virtual_learners.VirtualOptions(num_learners=3)
    )
    return torch.load(out / MODEL_FILE, weights_only=True)["parameters"], course


@pytest.mark.parametrize(
    "scheme, mixing",
    [("allreduce", {}), ("ring", dict(data_assignment="all")), ("adpsgd", {}), ("kaldi", {}), ("asgd", {})],
)
def test_sharing_does_not_change_results(corpus, tmp_path, monkeypatch, scheme, mixing):
    read = Counter()
    load = FeatureReader.__getitem__
    monkeypatch.setattr(
        FeatureReader, "__getitem__", lambda reader, key: read.update([key]) or load(reader, key)
    )
    shared, course = simulated(corpus, tmp_path / "shared", scheme, **mixing)
    assert set(read) == set(corpus[1].keys) and set(read.values()) == {1}
    monkeypatch.setattr(virtual_learners, "shards_for", lambda training: Shard)
    own, own_course = simulated(corpus, tmp_path / "own", scheme, **mixing)
    assert all(torch.equal(shared[name], own[name]) for name in own) and course == own_course
    assert min(read.values()) > 1


def test_shared_shard_equals_plain_shard(corpus):
    path, targets = corpus
    arguments = (
        FeatureReader(path / "data", InputOptions(cmvn="none")),
        targets,
        targets.keys,
        Packing(2, 2),
        Plain(torch.float32),
    )
    shards, alone = SharedShards(), Shard(*arguments)
    one, other = shards(*arguments), shards(*arguments)
    assert one is other and shards(*arguments[:2], targets.keys[:3], *arguments[3:]) is not one
    one.statistics()[:] = 0  # as an all-reduce overwrites its argument
    assert np.array_equal(one.statistics(), alone.statistics())
    everything = np.arange(len(targets.keys))
    store = one.store(everything, 0)
    assert store is other.store(everything, 0) and torch.equal(
        store.frames, alone.store(everything, 0).frames
    )
    assert not one._kept
    with pytest.raises(ValueError, match="a store of 3 of 24 utterances"):
        one.store(everything[:3], 0)


def test_streamed_frames_are_not_shared():
    assert isinstance(virtual_learners.shards_for(with_options()), SharedShards)
    assert (
        virtual_learners.shards_for(with_options(store=dict(max_store_mb=1)))
        is virtual_learners.shards_for(with_options(perturb=dict(vtlp=0.1)))
        is Shard
    )
