"""Triphone training on toy data: better than monophones, equal with any number of ranks, resumable;
alignments are checked."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import write_corpus
from steps_here import run_here
from toy_language import write_toy_lang

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.model.model_file import read_model, read_tree
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.training import train_gmm, train_triphones
from pyasr.hmm.training.train_deltas import train_rank
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec
from pyasr.hmm.training.train_mono import train_rank as train_mono_rank
from pyasr.hmm.training.train_triphones import TreeOptions, TriphoneSpec
from pyasr.io.int_vectors import read_int_vectors, read_job_archives, write_int_vectors
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

INPUTS = InputOptions(deltas=1)
ALIGN, UPDATE = AlignOptions(beam=30.0, retry_beam=100.0), GmmUpdateOptions(min_count=5.0)
MONO = TrainOptions(
    GmmScheduleOptions(num_iters=6, max_iter_inc=3, num_gauss=60, realign_iters="1 2 4"), ALIGN, UPDATE
)
DELTAS = TrainOptions(
    GmmScheduleOptions(num_iters=7, max_iter_inc=4, num_gauss=120, realign_iters="3 5"), ALIGN, UPDATE
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=200, seed=5, coarticulation=0.7)


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("mono")
    train_mono_rank(MonoSpec(*corpus, out, MONO, INPUTS), SoloComm())
    return out


def train(corpus, ali_dir: Path, out: Path, num_ranks: int = 1) -> Path:
    out.mkdir(exist_ok=True)
    spec = TriphoneSpec(*corpus, ali_dir, out, TreeOptions(num_leaves=60, cluster_thresh=0.0), DELTAS, INPUTS)
    run_threads(num_ranks, lambda comm: train_rank(spec, comm))
    return out


@pytest.fixture(scope="module")
def tri(corpus, mono, tmp_path_factory):
    return train(corpus, mono, tmp_path_factory.mktemp("tri"))


def log_like_per_frame(corpus, directory: Path) -> float:
    trans, gmm = read_model(directory / "final.mdl")
    shard = GmmShard.load(FeatureReader(corpus[0], INPUTS), LangDir(corpus[1]), 1, 1)
    shard.set_alignments(read_job_archives(directory), trans.num_tids, directory)
    stats, _ = shard.accumulate(trans, gmm)
    return stats.log_like / stats.num_frames


def test_triphones_have_higher_likelihood_than_monophones(corpus, mono, tri):
    trans, gmm = read_model(tri / "final.mdl")
    tree = read_tree(tri / "tree", trans)
    assert tree.context_width == 3 and read_tree(mono / "tree").num_pdfs < tree.num_pdfs <= 60
    assert gmm.num_gauss > read_model(mono / "final.mdl")[1].num_gauss
    assert log_like_per_frame(corpus, tri) > log_like_per_frame(corpus, mono)
    assert sorted(path.name for path in tri.iterdir()) == sorted(path.name for path in mono.iterdir())


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_result_does_not_depend_on_number_of_ranks(corpus, mono, tri, tmp_path, num_ranks):
    out = train(corpus, mono, tmp_path / "out", num_ranks)
    one, more = read_model(tri / "final.mdl")[1], read_model(out / "final.mdl")[1]
    assert (out / "tree").read_bytes() == (tri / "tree").read_bytes()
    np.testing.assert_array_equal(one.offsets, more.offsets)
    np.testing.assert_allclose(one.means, more.means, atol=2e-2)


@pytest.mark.parametrize("killed_in", [1, 5])
def test_killed_training_resumes_to_same_result(corpus, mono, tri, tmp_path, monkeypatch, killed_in):
    real = train_gmm.write_model

    def write_or_die(path, *model):
        if path.name == f"{killed_in + 1}.mdl":
            raise KeyboardInterrupt
        real(path, *model)

    monkeypatch.setattr(train_gmm, "write_model", write_or_die)
    with pytest.raises(KeyboardInterrupt):
        train(corpus, mono, tmp_path / "out")
    monkeypatch.setattr(train_gmm, "write_model", real)
    train(corpus, mono, tmp_path / "out")
    for name in ("final.mdl", "ali.1.gz", "tree", "final.occs"):
        assert (tmp_path / "out" / name).read_bytes() == (tri / name).read_bytes()


def spoiled(mono: Path, tmp_path: Path, change) -> Path:
    out = Path(shutil.copytree(mono, tmp_path / "ali"))
    alignments = read_int_vectors(out / "ali.1.gz")
    utt = sorted(alignments)[7]
    write_int_vectors(out / "ali.1.gz", alignments | {utt: change(alignments[utt])})
    return out


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda tids: tids[:-1],
            "the alignment of .* has .* frames, its features have .*; align this data directory again",
        ),
        (lambda tids: np.full_like(tids, 30000), "has transition-id 30000"),
        (lambda tids: tids[::-1], "alignment of"),
    ],
)
def test_mismatched_alignment_is_refused(corpus, mono, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        train(corpus, spoiled(mono, tmp_path, change), tmp_path / "out")


def test_alignments_of_other_utterances_are_refused(corpus, mono, tmp_path):
    ali = Path(shutil.copytree(mono, tmp_path / "ali"))
    write_int_vectors(ali / "ali.1.gz", {"nobody": np.array([1, 2], np.int32)})
    with pytest.raises(UserError, match="no alignment of any utterance"):
        train(corpus, ali, tmp_path / "out")


def test_utterances_without_alignment_join_at_first_realignment(corpus, mono, tmp_path):
    ali = Path(shutil.copytree(mono, tmp_path / "ali"))
    alignments = read_int_vectors(ali / "ali.1.gz")
    missing = sorted(alignments)[3]
    write_int_vectors(ali / "ali.1.gz", {utt: tids for utt, tids in alignments.items() if utt != missing})
    out = train(corpus, ali, tmp_path / "out")
    assert missing in read_job_archives(out)


@pytest.mark.parametrize("num_states", [1, 4])
@pytest.mark.parametrize("num_sil_states", [1, 5])
def test_questions_use_central_state(tmp_path, monkeypatch, num_states, num_sil_states):
    """Some questions contain several phones, but not all, for any numbers of states."""
    data, _ = write_corpus(tmp_path, num_utterances=30, seed=5)
    lang = write_toy_lang(
        tmp_path / "short",
        5,
        num_words=12,
        num_phones=4,
        num_nonsil_states=num_states,
        num_sil_states=num_sil_states,
    )
    (tmp_path / "mono").mkdir()
    calls, real = [], train_triphones.make_questions

    def watched(*words, pdf_classes, **more):
        calls.append((pdf_classes, real(*words, pdf_classes=pdf_classes, **more)))
        return calls[-1][1]

    monkeypatch.setattr(train_triphones, "make_questions", watched)
    short = dataclasses.replace(
        MONO, schedule=GmmScheduleOptions(num_iters=2, max_iter_inc=1, num_gauss=20, realign_iters="1")
    )
    train_mono_rank(MonoSpec(data, lang, tmp_path / "mono", short, INPUTS), SoloComm())
    spec = TriphoneSpec(data, lang, tmp_path / "mono", tmp_path, TreeOptions(num_leaves=20), short, INPUTS)
    train_rank(spec, SoloComm())
    ((pdf_classes, questions),) = calls
    phones = LangDir(lang)
    spoken, size = set(phones.nonsilence_phones), len(phones.sets[-1])
    assert pdf_classes == (num_states // 2,) and any(
        size < len(asked & spoken) < len(spoken) for asked in questions[1]
    )


@pytest.mark.parametrize("program", ["train_deltas.py", "train_lda_mllt.py", "train_sat.py"])
def test_single_iteration_is_refused(program, corpus, mono, tmp_path):
    with pytest.raises(
        UserError,
        match="--num-iters 1: the training of triphones starts with iteration 1, .*; give 2 or more",
    ):
        run_here(program, "--num-iters", 1, *corpus, mono, tmp_path / "tri")
    assert not list(tmp_path.iterdir())
