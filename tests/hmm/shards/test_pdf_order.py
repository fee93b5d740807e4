"""Frames in rounds and in files equal those of one array for any limit. Trainings with any limit end with the
same bytes."""

import dataclasses
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gmm_corpus import write_corpus
from gmm_toys import random_model

from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model import gmm_update
from pyasr.hmm.model.gmm_update import GmmStats, GmmUpdateOptions, accumulate, by_pdf
from pyasr.hmm.shards import frame_file, gmm_shard, pdf_order
from pyasr.hmm.shards.frame_file import FrameFile, Scratch
from pyasr.hmm.training import train_gmm
from pyasr.hmm.training.align_fmllr import AlignFmllrSpec, align_rank
from pyasr.hmm.training.train_deltas import train_rank as train_deltas_rank
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_lda_mllt import LdaMlltOptions, LdaMlltSpec
from pyasr.hmm.training.train_lda_mllt import train_rank as train_lda_mllt_rank
from pyasr.hmm.training.train_mono import MonoSpec
from pyasr.hmm.training.train_mono import train_rank as train_mono_rank
from pyasr.hmm.training.train_sat import SatOptions, SatSpec
from pyasr.hmm.training.train_sat import train_rank as train_sat_rank
from pyasr.hmm.training.train_triphones import TreeOptions, TriphoneSpec
from pyasr.hmm.transforms.fmllr import FmllrOptions, FmllrStats
from pyasr.io.int_vectors import iterate_int_vectors
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

ALIGN, UPDATE = AlignOptions(beam=30.0, retry_beam=100.0), GmmUpdateOptions(min_count=5.0)
TRAIN = TrainOptions(
    GmmScheduleOptions(num_iters=4, max_iter_inc=2, num_gauss=60, realign_iters="2"), ALIGN, UPDATE
)
FMLLR = FmllrOptions(fmllr_min_count=100.0)
BLOCK = 16


@pytest.fixture(scope="module")
def small_blocks():
    """Reduce the block size so that toy pdfs fill blocks."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (frame_file, gmm_update, pdf_order, gmm_shard):
            patch.setattr(module, "FRAMES_PER_BLOCK", BLOCK)
        yield


class Utterances:
    """Random frames of random pdfs as a `pdf_order.Source`. Some pdfs have very many frames, one has none."""

    num_utterances, width = 9, 3

    def __init__(self):
        rng = np.random.default_rng(0)
        shares = np.array([0.3, 0.5, 6, 0, 1, 1, 0.1, 2])
        pdfs = rng.choice(np.arange(-1, 8), 700, p=np.append(1, shares) / (1 + shares.sum()))
        self.all_pdfs, self.frames = pdfs.astype(np.int32), rng.standard_normal((700, 3)).astype(np.float32)
        self.ends, self.num_read = np.linspace(0, 700, 10).astype(int), 0
        self.counts = np.bincount(pdfs[pdfs >= 0], minlength=8)

    def pdfs(self, index):
        return self.all_pdfs[self.ends[index] : self.ends[index + 1]]

    def features(self, index):
        self.num_read += 1
        return self.frames[self.ends[index] : self.ends[index + 1]]


@pytest.mark.parametrize("most_rows", [BLOCK, 40, 100, 300, 10_000])
@pytest.mark.parametrize("in_order", [False, True])
def test_rounds_give_same_blocks_as_one_array(small_blocks, most_rows, in_order):
    source = Utterances()
    found = [
        (pdf, rows.copy()) for pdf, rows in pdf_order.in_rounds(source, source.counts, most_rows, in_order)
    ]
    expected = list(by_pdf(source.frames, source.all_pdfs))
    if not in_order:
        found.sort(key=lambda block: block[0])  # stable: blocks of a pdf keep their order
    assert [pdf for pdf, _ in found] == [pdf for pdf, _ in expected]
    assert all(np.array_equal(ours, theirs) for (_, ours), (_, theirs) in zip(found, expected))


def test_number_of_rounds_follows_memory_limit(small_blocks):
    """All frames at once are one round; if full blocks are yielded, a buffer of one block per pdf is enough
    for it."""
    for most_rows, in_order, num_rounds in ((10_000, True, 1), (8 * BLOCK, False, 1), (4 * BLOCK, False, 2)):
        source = Utterances()
        for _ in pdf_order.in_rounds(source, source.counts, most_rows, in_order):
            pass
        assert source.num_read == num_rounds * source.num_utterances


@pytest.mark.parametrize("most_rows", [BLOCK, 100, 10_000])
def test_files_give_same_blocks_as_one_array(small_blocks, most_rows, tmp_path):
    """Frames can be read repeatedly although utterances are read once, also if an utterance is longer than
    memory allows."""
    source = Utterances()
    file = FrameFile(source, source.counts, most_rows, tmp_path)
    expected = list(by_pdf(source.frames, source.all_pdfs))
    for _ in range(2):
        found = [(pdf, rows.copy()) for pdf, rows in file.blocks()]
        assert [pdf for pdf, _ in found] == [pdf for pdf, _ in expected]
        assert all(np.array_equal(ours, theirs) for (_, ours), (_, theirs) in zip(found, expected))
    assert source.num_read == source.num_utterances and not list(tmp_path.iterdir())


def test_insufficient_disk_space_is_reported(tmp_path, monkeypatch):
    """Detected in advance, for all ranks together, or when the disk is full."""
    report, source = [], Utterances()
    num_bytes = 12 * int(source.counts.sum())
    monkeypatch.setattr(frame_file.log, "warning", report.append)
    monkeypatch.setattr(frame_file.shutil, "disk_usage", lambda folder: SimpleNamespace(free=6 * num_bytes))
    assert Scratch(tmp_path, 3).write(source, source.counts, 100) and not report
    assert Scratch(tmp_path, 4).write(source, source.counts, 100) is None and len(report) == 1
    monkeypatch.setattr(frame_file.tempfile, "TemporaryFile", lambda dir: open("/dev/full", "w+b"))
    assert Scratch(tmp_path, 3).write(source, source.counts, 100) is None
    assert report[1].endswith(
        f" {num_bytes / 1e6:.2g} MB of features do not fit in memory, and the disk has too little space: "
        "they are read from their archives more often; free disk space, or raise --max-store-mb"
    )


def test_accumulation_is_bit_identical_for_any_pdf_order():
    """All sums and the log-likelihood are bit-identical for any order of pdfs."""
    rng, model = np.random.default_rng(3), random_model(40, 3, 5)
    # frames whose sums need rounding
    feats = (10.0 ** rng.integers(0, 7, (9000, 1)) * rng.standard_normal((9000, 5))).astype(np.float32)
    pdfs = rng.integers(-1, 40, 9000)
    frames = list(by_pdf(feats, pdfs))
    one = GmmStats.zeros(model)
    accumulate(model, frames, one)
    for seed in range(8):
        other, place = GmmStats.zeros(model), np.random.default_rng(seed).permutation(40)
        accumulate(model, sorted(frames, key=lambda block, place=place: place[block[0]]), other)
        assert np.array_equal(one.sums, other.sums) and (one.log_like, one.num_frames) == (
            other.log_like,
            other.num_frames,
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=40, seed=5, strength=0.25)


def chain(corpus, path: Path, num_ranks: int) -> None:
    """One system of each kind in directories of `path`, each from the previous one, and an alignment."""
    tree, inputs = TreeOptions(num_leaves=30, cluster_thresh=0.0), InputOptions(deltas=1)
    deltas = TriphoneSpec(*corpus, path / "mono", path / "deltas", tree, TRAIN, inputs)
    lda = TriphoneSpec(
        *corpus, path / "deltas", path / "lda", tree, TRAIN, InputOptions(splice_left=1, splice_right=1)
    )
    sat = dataclasses.replace(lda, ali_dir=path / "lda", out=path / "sat")
    for train_rank, spec in (
        (train_mono_rank, MonoSpec(*corpus, path / "mono", TRAIN, inputs)),
        (train_deltas_rank, deltas),
        (train_lda_mllt_rank, LdaMlltSpec(lda, LdaMlltOptions(dim=6, mllt_iters="2"))),
        (train_sat_rank, SatSpec(sat, SatOptions(fmllr_iters="2"), FMLLR)),
        (align_rank, AlignFmllrSpec(*corpus, path / "sat", path / "ali", ALIGN, 1.0, FMLLR)),
    ):
        out = getattr(spec, "triphones", spec).out
        out.mkdir(parents=True)
        run_threads(num_ranks, lambda comm, work=train_rank, spec=spec: work(spec, comm))


@pytest.fixture(scope="module")
def trained(corpus, small_blocks, tmp_path_factory):
    """The chain with a limit that fits all frames."""
    path = tmp_path_factory.mktemp("trained")
    chain(corpus, path, 2)
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


@pytest.mark.parametrize("disk", [True, False])
def test_trainings_with_any_memory_limit_are_bit_identical(disk, corpus, trained, tmp_path, monkeypatch):
    """With all frames in memory, and with a hundred, on a disk with space for all and on a full one."""
    monkeypatch.setattr(gmm_shard, "reserve", lambda *_: 3000)
    if not disk:
        monkeypatch.setattr(Scratch, "write", lambda *_: None)
    chain(corpus, tmp_path, 2)
    expected = contents(trained)
    assert {
        "mono/final.mdl",
        "lda/final.mat",
        "sat/final.alimdl",
        "sat/trans.2",
        "ali/ali.1.gz",
    } <= expected.keys()
    assert contents(tmp_path) == expected


def test_speaker_statistics_are_in_memory_one_at_a_time(corpus, trained, tmp_path, monkeypatch):
    """Statistics of speakers that are on no other rank."""
    alive, most, real = weakref.WeakSet(), [], FmllrStats.zeros.__func__

    def watched(cls, dim):
        made = real(cls, dim)
        alive.add(made)
        most.append(len(alive))
        return made

    monkeypatch.setattr(FmllrStats, "__hash__", object.__hash__, raising=False)
    monkeypatch.setattr(FmllrStats, "zeros", classmethod(watched))
    align_rank(AlignFmllrSpec(*corpus, trained / "sat", tmp_path, ALIGN, 1.0, FMLLR), SoloComm())
    assert len(most) == 4 and max(most) <= 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize("num_ranks, archives", [(2, [{"1of2"}, {"2of2"}]), (3, [{"1of2", "2of2"}] * 3)])
def test_resumed_ranks_read_their_own_alignments(corpus, tmp_path, monkeypatch, num_ranks, archives):
    spec = MonoSpec(*corpus, tmp_path, TRAIN, InputOptions())
    real = train_gmm.write_model

    def write_or_die(path, *model):
        if path.name == "3.mdl":
            raise Killed
        real(path, *model)

    monkeypatch.setattr(train_gmm, "write_model", write_or_die)
    with pytest.raises(Killed):
        run_threads(2, lambda comm: train_mono_rank(spec, comm))
    monkeypatch.setattr(train_gmm, "write_model", real)
    read: dict[int, set[str]] = {}

    def run(comm):
        def watched(trainer, kind, count, reader):
            of_rank = read.setdefault(trainer.comm.rank, set())
            return saved(
                trainer, kind, count, lambda path: of_rank.add(path.name.split(".")[2]) or reader(path)
            )

        monkeypatch.setattr(train_gmm.GmmTrainer, "_saved", watched)
        train_mono_rank(spec, comm)

    saved = train_gmm.GmmTrainer._saved
    run_threads(num_ranks, run)
    assert [read[rank] for rank in range(num_ranks)] == archives
    assert sum(len(dict(iterate_int_vectors(path))) for path in tmp_path.glob("ali.*.gz")) == 40
