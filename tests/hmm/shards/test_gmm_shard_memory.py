"""Memory of a shard: at most 100 bytes per frame; limits and free memory; data that do not fit are on
disk."""

import tracemalloc

import numpy as np
import pytest
from gmm_corpus import write_corpus
from gmm_toys import random_model, random_transitions, triphone_tree

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.shards import shard_store
from pyasr.hmm.shards.adaptable_shard import AdaptableShard
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.shards.shard_store import MemoryOptions, reserve, zeros
from pyasr.hmm.transforms.mllt import MlltStats
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=40, seed=5, strength=0.25)


@pytest.fixture(scope="module")
def long_corpus(corpus, tmp_path_factory):
    """The tables of 240 utterances of 500 frames, whose features are all the same matrix of 13 columns in one
    archive."""
    data = tmp_path_factory.mktemp("long")
    with ArkWriter(data / "feats.ark", data / "one.scp") as writer:
        writer.write("utt", np.random.default_rng(0).standard_normal((500, 13)).astype(np.float32))
    (rx,) = read_table(data / "one.scp").values()
    names = [f"s{i // 20:02d}-{i:03d}" for i in range(240)]
    write_table(data / "feats.scp", dict.fromkeys(names, rx))
    write_table(data / "utt2spk", {name: name[:3] for name in names})
    write_table(data / "text", dict.fromkeys(names, next(iter(read_table(corpus[0] / "text").values()))))
    return data


def aligned(shard: GmmShard, num_tids: int) -> GmmShard:
    """Targets with a random alignment."""
    shard.alignment[:] = np.random.default_rng(1).integers(1, num_tids + 1, shard.num_frames)
    return shard


def test_memory_is_at_most_100_bytes_per_frame(corpus, long_corpus, monkeypatch):
    """In addition to 4 MB. Features pass through a transform of each speaker, which changes between
    accumulations; 40 columns take 160 bytes."""
    monkeypatch.setattr(shard_store, "_SMALL_BYTES", 0)
    trans, rng = random_transitions(triphone_tree()), np.random.default_rng(2)
    model, lang = random_model(trans.num_pdfs, 2, 40), LangDir(corpus[1])
    matrices = {f"s{i:02d}": rng.standard_normal((40, 117)).astype(np.float32) for i in range(12)}
    reader = FeatureReader(long_corpus, InputOptions(cmvn="none"))

    def accumulated() -> AdaptableShard:
        adaptable = AdaptableShard.load(reader, lang, 1, 1)
        adaptable.prepare(InputOptions(splice_left=4, splice_right=4), {}, set())
        aligned(adaptable, trans.num_tids)
        for _ in range(2):
            adaptable.transform(lambda utt: matrices[utt[:3]], 40)
            adaptable.accumulate(trans, model)
        adaptable.accumulate(trans, model, seen_as=adaptable.features)
        MlltStats.zeros(40).accumulate(model, adaptable.frames_by_pdf(trans.tid2pdf, in_order=True))
        return adaptable

    accumulated()  # imports numba and loads kernels
    tracemalloc.start()
    try:
        num_frames = accumulated().num_frames
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_frames == 120_000 and 40 < (peak - 4_000_000) / num_frames < 100


@pytest.mark.parametrize(
    "limit, on_disk, num_reads",
    [(0, False, [240, 0, 240]), (3, True, [240, 0, 240]), (3, False, [240, 240, 240])],
)
def test_frames_stay_in_memory_or_on_disk(
    corpus, long_corpus, tmp_path, monkeypatch, limit, on_disk, num_reads
):
    """In memory if the limit allows it, else on disk, until the alignment changes; 6 MB of features and 0.5
    MB of alignment."""
    trans, read = random_transitions(triphone_tree()), []
    model = random_model(trans.num_pdfs, 2, 13)
    reader, folder = FeatureReader(long_corpus, InputOptions(cmvn="none")), tmp_path if on_disk else None
    own = GmmShard.load(reader, LangDir(corpus[1]), 1, 1, MemoryOptions(limit), folder=folder)
    aligned(own, trans.num_tids)
    real = own.features
    monkeypatch.setattr(own, "features", lambda index: read.append(index) or real(index))
    for expected in num_reads:
        read.clear()
        if expected:
            own.set_alignments(dict(own.alignments()), trans.num_tids, "ali-dir")
        own.accumulate(trans, model)
        assert len(read) == expected


def test_insufficient_memory_gives_one_sentence(tmp_path, monkeypatch):
    data, comm = tmp_path / "data", SoloComm()
    sentence = "^--max-store-mb 3 is too little for 1000000 frames and a block of features; give 6 or more$"
    with pytest.raises(UserError, match=sentence):
        reserve(data, 1_000_000, MemoryOptions(3), comm)
    assert reserve(data, 1_000_000, MemoryOptions(6), comm) == 2_000_000
    assert reserve(data, 1_000_000, MemoryOptions(), comm) == 128_000_000
    assert reserve(data, 2_000_000, MemoryOptions(), comm) == 160_000_000
    assert reserve(data, 10**9, MemoryOptions(), comm) == 1_000_000_000
    monkeypatch.setattr(shard_store.host_memory, "free_bytes", lambda: 10_000_000)
    sentence = (
        "data: too little memory: 5000000 frames of a rank need at least 22 MB, but 10 MB are free "
        "for each rank; use more"
    )
    with pytest.raises(UserError, match=sentence):
        reserve(data, 5_000_000, MemoryOptions(), comm)


def test_memory_limit_follows_free_memory(tmp_path, monkeypatch):
    """Each rank of a host may use its share of the free memory."""
    report: list[str] = []
    monkeypatch.setattr(shard_store.host_memory, "free_bytes", lambda: 48_000_000)
    monkeypatch.setattr(shard_store.log, "warning", report.append)
    rooms = run_threads(2, lambda comm: reserve(tmp_path / "data", 1_000_000, MemoryOptions(100), comm))
    assert rooms == [16_000_000] * 2
    assert report[0].endswith(
        "data: only 24 MB of memory are free for each rank: features use 16 MB and are read from disk more "
        "often"
    )


def test_large_arrays_are_on_disk(tmp_path):
    """The file has no name."""
    in_memory, on_disk = zeros((10, 3), np.float32, 120, tmp_path), zeros((10, 3), np.float32, 119, tmp_path)
    assert (
        not isinstance(in_memory, np.memmap)
        and isinstance(on_disk, np.memmap)
        and not list(tmp_path.iterdir())
    )
    on_disk[4:6] = 7
    assert on_disk.dtype == np.float32 and on_disk.sum() == 42


def test_features_changed_during_training_are_reported(corpus, tmp_path):
    own = GmmShard.load(FeatureReader(corpus[0], InputOptions()), LangDir(corpus[1]), 1, 1)
    utt = own.keys[2]
    own.reader._table = {**dict(own.reader._table.items()), utt: own.reader._table[own.keys[3]]}
    with pytest.raises(
        UserError, match=f"data: {utt} has .* frames now, but had .* when this program started"
    ):
        own.features(2)
