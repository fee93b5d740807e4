"""Prepared training data are in files. Only names, a few numbers per utterance, and one archive are in
memory."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from chain_corpus import write_chain_corpus

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io import content, keys, tables
from pyasr.io.int_vectors import read_job_archives, write_int_vectors
from pyasr.io.keys import Keys
from pyasr.io.tables import Table
from pyasr.lang.lang_dirs.subwords import SubwordOptions, train_subwords
from pyasr.sequence.lfmmi.chain import aligned_phones
from pyasr.sequence.lfmmi.supervision import SupervisionOptions
from pyasr.train.steps import ctc_targets
from pyasr.train.targets.alignment_spool import AlignmentSpool, VectorSpool
from pyasr.train.targets.phone_spool import PhoneSpool

MAX_BYTES = 120  # per utterance, with a name of 20 characters; a dictionary alone takes more
PER_ARCHIVE = 250


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK_LINES", 64)
    monkeypatch.setattr(keys, "_MAX_NEW", 64)
    monkeypatch.setattr(content, "_CHUNK_BYTES", 1 << 13)
    monkeypatch.setattr(ctc_targets, "_BLOCK", 50)


def growth(make, first: int = 1000, second: int = 3000) -> float:
    """Additional peak bytes per utterance. `make(number)` prepares `number` utterances, and returns what is
    measured."""
    peaks = []
    for number in (first, second):
        work = make(number)
        tracemalloc.start()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (second - first)


def write_archives(path, number: int, vector) -> None:
    """Utterances in another order than C order, in archives of PER_ARCHIVE each."""
    path.mkdir()
    names = [f"utterance-{i * 7919 % number:010d}" for i in range(number)]
    for job, begin in enumerate(range(0, number, PER_ARCHIVE), 1):
        write_int_vectors(path / f"ali.{job}.gz", dict.fromkeys(names[begin : begin + PER_ARCHIVE], vector))
    (path / "num_jobs").write_text(f"{job}\n")


def test_memory_of_alignments(tmp_path, small_blocks):
    def make(number):
        path = tmp_path / str(number)
        write_archives(path, number, np.ones(5, np.int32))
        wanted = Keys.of(f"utterance-{i:010d}" for i in range(number))
        return lambda: spool_alignments(path, wanted)

    assert growth(make) < MAX_BYTES


def spool_alignments(path, wanted: Keys) -> None:
    with AlignmentSpool(path, np.array([-1, 3]), path / "spool") as spool:
        spool.check(wanted)
        assert spool.offsets(wanted)[-1] == 5 * len(wanted) and all(
            vector.tolist() == [3] * 5 for vector in spool.vectors(wanted)
        )


def test_utterance_in_two_archives_is_refused(tmp_path):
    for job, names in enumerate(("cab", "df", "gaf"), 1):
        write_int_vectors(tmp_path / f"ali.{job}.gz", dict.fromkeys(names, [1]))
    (tmp_path / "num_jobs").write_text("3\n")
    with pytest.raises(UserError, match=r"ali.3.gz: a is also in the archive of an earlier job; align again"):
        AlignmentSpool(tmp_path, np.array([-1, 0]), tmp_path / "spool").__enter__()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_chain_corpus(tmp_path_factory.mktemp("spools"), 12)


def test_phones_equal_those_of_alignments(corpus, tmp_path):
    """For alignments that are as long as the features."""
    alignments = read_job_archives(corpus / "ali")
    reader = FeatureReader(corpus / "data", InputOptions(cmvn="none"))
    longer = reader.keys[3]
    fake = SimpleNamespace(has=reader.has, num_frames=lambda key: reader.num_frames(key) + (key == longer))
    expected = dict(aligned_phones(read_transitions(corpus / "ali/final.mdl"), alignments))
    with PhoneSpool(corpus / "ali", fake, SupervisionOptions(), tmp_path / "spool") as spool:
        assert dict(spool.num_frames.items()) == {key: len(tids) for key, tids in sorted(alignments.items())}
        assert spool.have_room(reader.keys).tolist() == [key != longer for key in reader.keys]
        for key, found in zip(reader.keys, spool.aligned(reader.keys)):
            one = expected[key]
            if key == longer:
                assert not len(found.phones) and not len(found.starts)
            else:
                assert np.array_equal(found.phones, one.phones) and np.array_equal(found.starts, one.starts)
                assert (found.phones.dtype, found.starts.dtype) == (one.phones.dtype, one.starts.dtype)
    assert not (tmp_path / "spool").exists()


def test_memory_of_phones(corpus, tmp_path, small_blocks):
    vector = min(read_job_archives(corpus / "ali").values(), key=len)
    reader = SimpleNamespace(has=lambda key: True, num_frames=lambda key: len(vector))

    def make(number):
        path = tmp_path / str(number)
        write_archives(path, number, vector)
        (path / "final.mdl").write_bytes((corpus / "ali/final.mdl").read_bytes())
        wanted = Keys.of(f"utterance-{i:010d}" for i in range(number))
        return lambda: spool_phones(path, reader, wanted)

    assert growth(make) < MAX_BYTES


def spool_phones(path, reader, wanted: Keys) -> None:
    with PhoneSpool(path, reader, SupervisionOptions(), path / "spool") as spool:
        assert spool.have_room(wanted).all() and sum(1 for _ in spool.aligned(wanted)) == len(wanted)


def test_memory_of_units(tmp_path, small_blocks):
    """For transcripts of ten words. Their table is in memory."""
    text = "a bad cab had a fad gag a bead cafe"
    subwords = train_subwords([text], SubwordOptions(num_units=12), "text")
    size = len(text) + 21

    def make(number):
        names = Keys.of(f"utterance-{i:010d}" for i in range(number))
        reader = SimpleNamespace(keys=names, num_frames=lambda key: 100)
        texts = Table.of((name, text) for name in names)
        return lambda: spool_units(
            ctc_targets._Transcripts(reader, subwords, texts, 1), tmp_path / "spool", number
        )

    assert growth(make) < MAX_BYTES + size


def spool_units(transcripts, path, number: int) -> None:
    with VectorSpool(path, transcripts.units()) as spool:
        assert len(spool.keys) == number and not transcripts.skipped


def test_memory_of_copies(tmp_path, small_blocks):
    """For utterances whose originals are missing."""

    def make(number):
        path = tmp_path / str(number)
        path.mkdir()
        names = [f"sp1.1-utterance-{i:06d}" for i in range(number)]
        for table, value in (
            ("feats.scp", "{}.ark:1"),
            ("utt2spk", "{}-speaker"),
            ("utt2uniq", "{}-original"),
        ):
            (path / table).write_text("".join(f"{name} {value.format(name)}\n" for name in names))
        reader = FeatureReader(path, InputOptions(cmvn="none"))
        return lambda: sum(1 for name in names if reader.original(name)[1] == f"{name}-speaker")

    assert growth(make, 500, 2000) < 240  # tables with two names per line
