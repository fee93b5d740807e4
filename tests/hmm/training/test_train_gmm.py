"""Whole GMM trainings on toy data: ranks, resumption, objective; mismatched alignments; steps from the
command line."""

import ast
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import DIM, write_corpus

from pyasr.base.errors import UserError
from pyasr.base.outputs.progress_note import VARIABLE, read_note
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.graphs.transcript_ids import read_words
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.model.model_file import read_model, read_tree
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.training import train_gmm
from pyasr.hmm.training.align_gmm import AlignSpec, align_shard, merge_reports
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec, train_rank
from pyasr.io.ark import ArkWriter, load_all, read_scp
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.kaldi_objects import KaldiReader
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

ROOT = Path(__file__).parents[3]
SCHEDULE = GmmScheduleOptions(
    num_iters=8, max_iter_inc=5, num_gauss=60, realign_iters="1 2 4 6", first_beam=20.0
)
TRAIN = TrainOptions(SCHEDULE, AlignOptions(beam=30.0, retry_beam=100.0), GmmUpdateOptions(min_count=5.0))
INPUTS = InputOptions(deltas=0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def spec_of(corpus, out: Path, train=TRAIN) -> MonoSpec:
    out.mkdir(exist_ok=True)
    return MonoSpec(*corpus, out, train, INPUTS)


def train(corpus, out: Path, num_ranks: int = 1, options=TRAIN) -> Path:
    spec = spec_of(corpus, out, options)
    run_threads(num_ranks, lambda comm: train_rank(spec, comm))
    return out


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory):
    return train(corpus, tmp_path_factory.mktemp("mono"))


def test_monophone_directory_is_complete(corpus, mono):
    assert sorted(path.name for path in mono.iterdir()) == [
        "ali.1.gz",
        "cmvn_opts",
        "delta_opts",
        "failed_utterances",
        "final.mdl",
        "final.occs",
        "input.json",
        "num_jobs",
        "phones.txt",
        "splice_opts",
        "tree",
    ]
    trans, gmm = read_model(mono / "final.mdl")
    assert read_tree(mono / "tree", trans).num_pdfs == gmm.num_pdfs and gmm.dim == DIM
    assert InputOptions.load(mono) == INPUTS
    alignments = read_job_archives(mono)
    assert sorted(alignments) == sorted(read_table(corpus[0] / "text"))
    occupancies = np.bincount(
        trans.tid2pdf[np.concatenate(list(alignments.values()))], minlength=gmm.num_pdfs
    )
    np.testing.assert_allclose(KaldiReader(mono / "final.occs").vector(), occupancies, rtol=1e-4)


def test_training_reports_progress(corpus, tmp_path, monkeypatch):
    """The progress note for the waiting step has the last iteration, with the objective in the log."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "note"))
    said = []
    monkeypatch.setattr(train_gmm.log, "info", said.append)
    train(
        corpus,
        tmp_path / "mono",
        options=dataclasses.replace(TRAIN, schedule=dataclasses.replace(SCHEDULE, num_iters=2)),
    )
    note = read_note(tmp_path / "note")
    ((objective, frames),) = re.findall(
        r"iteration 1: log-likelihood per frame (\S+) over (\d+) frames", "\n".join(said)
    )
    assert (note.what, note.share, note.left_s) == ("iteration 2 of 2", 1.0, 0.0) and note.frames_per_s > 0
    assert f"{note.objective:.4f}" == objective and int(frames) > 0


def test_training_finds_true_phones(corpus, mono):
    """Frames were drawn with variance 1 around distant means. The Gaussians recover both."""
    trans, gmm = read_model(mono / "final.mdl")
    shard = GmmShard.load(FeatureReader(corpus[0], INPUTS), LangDir(corpus[1]), 1, 1)
    shard.set_alignments(read_job_archives(mono), trans.num_tids, mono)
    stats, _ = shard.accumulate(trans, gmm)
    truth = -0.5 * DIM * (np.log(2 * np.pi) + 1)
    assert abs(stats.log_like / stats.num_frames - truth) < 1.2


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_result_does_not_depend_on_number_of_ranks(corpus, mono, tmp_path, num_ranks):
    out = train(corpus, tmp_path / "out", num_ranks)
    (one, gmm_one), (more, gmm_more) = read_model(mono / "final.mdl"), read_model(out / "final.mdl")
    np.testing.assert_allclose(one.log_prob, more.log_prob, atol=1e-4)
    np.testing.assert_array_equal(gmm_one.offsets, gmm_more.offsets)
    np.testing.assert_allclose(gmm_one.means, gmm_more.means, atol=1e-2)
    a, b = read_job_archives(mono), read_job_archives(out)
    assert a.keys() == b.keys() and (out / "num_jobs").read_text() == f"{num_ranks}\n"
    assert np.mean([np.mean(a[utt] == b[utt]) for utt in a]) > 0.999


class Killed(BaseException):
    pass


@pytest.mark.parametrize("killed_in, num_ranks", [(1, 1), (5, 2), (7, 1)])
def test_killed_training_resumes_to_same_result(corpus, mono, tmp_path, monkeypatch, killed_in, num_ranks):
    """Killed while the model of an iteration is written, then resumed with the same or another number of
    ranks."""
    out = tmp_path / "out"
    real = train_gmm.write_model

    def write_or_die(path, *model):
        if path.name == f"{killed_in + 1}.mdl":
            raise Killed
        real(path, *model)

    monkeypatch.setattr(train_gmm, "write_model", write_or_die)
    with pytest.raises(Killed):
        train(corpus, out)
    assert not (out / "final.mdl").exists()
    monkeypatch.setattr(train_gmm, "write_model", real)
    train(corpus, out, num_ranks)
    if num_ranks == 1:
        assert (out / "final.mdl").read_bytes() == (mono / "final.mdl").read_bytes()
        assert (out / "ali.1.gz").read_bytes() == (mono / "ali.1.gz").read_bytes()
    np.testing.assert_allclose(
        read_model(out / "final.mdl")[1].means, read_model(mono / "final.mdl")[1].means, atol=1e-2
    )
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith("ali")) == sorted(
        path.name for path in mono.iterdir() if not path.name.startswith("ali")
    )


def test_objective_falls_only_at_splits_or_realignments(corpus, tmp_path, monkeypatch):
    seen = []
    real = train_gmm.GmmTrainer._updated

    def spy(self, x, model, stats, counts):
        seen.append((x, stats.log_like / stats.num_frames, model.gmm.num_gauss))
        return real(self, x, model, stats, counts)

    monkeypatch.setattr(train_gmm.GmmTrainer, "_updated", spy)
    schedule = GmmScheduleOptions(
        num_iters=14, max_iter_inc=3, num_gauss=60, realign_iters="1 2 5 9", first_beam=20.0
    )
    train(corpus, tmp_path / "out", options=TrainOptions(schedule, TRAIN.align, TRAIN.update))
    compared = 0
    for (_, before, num_before), (x, after, num_after) in zip(seen, seen[1:]):
        if x not in schedule.realign and num_before == num_after:
            assert after >= before - 1e-4
            compared += 1
    assert compared >= 4 and seen[-1][1] > seen[0][1] + 1


def test_number_of_gaussians_follows_the_schedule(mono):
    assert read_model(mono / "final.mdl")[1].num_gauss <= 60
    schedule = GmmScheduleOptions(num_gauss=1000, max_iter_inc=30)
    assert [schedule.target(x, 130) for x in (0, 1, 2, 30, 31, 39)] == [130, 130, 159, 971, 1000, 1000]


def copy_of(corpus, tmp_path: Path) -> tuple[Path, Path]:
    return Path(shutil.copytree(corpus[0], tmp_path / "data")), corpus[1]


def change(path: Path, **entries) -> None:
    table = read_table(path)
    for key, value in entries.items():
        table[key.replace("_", "-")] = value
    write_table(path, {key: value for key, value in table.items() if value is not None})


def test_unusable_utterances_are_named(corpus, tmp_path, capfd):
    data, lang = copy_of(corpus, tmp_path)
    change(data / "text", s0_000="", s1_001="strange words", s2_002=None)
    write_table(
        data / "feats.scp", {key: rx for key, rx in read_scp(data / "feats.scp").items() if key != "s3-003"}
    )
    words, failed = read_words(data, LangDir(lang), sorted(read_table(data / "utt2spk")))
    assert failed == {"s0-000": "its transcript is empty", "s2-002": "no line in text"}
    assert (words["s1-001"] == LangDir(lang).oov).all()
    shard = GmmShard.load(FeatureReader(data, INPUTS), LangDir(lang), 1, 1)
    assert shard.failed.keys() == {"s0-000", "s2-002", "s3-003"} and "s1-001" in shard.keys
    train((data, lang), tmp_path / "out")
    assert read_job_archives(tmp_path / "out").keys() == set(shard.keys)


def test_non_finite_and_empty_features_are_named(corpus, tmp_path):
    data, lang = copy_of(corpus, tmp_path)
    with ArkWriter(tmp_path / "more.ark", tmp_path / "more.scp") as writer:
        writer.write("s1-001", np.array([[0.0, np.nan, 1.0, 2.0]] * 20, np.float32))
        writer.write("s2-002", np.zeros((0, 0), np.float32))
    write_table(data / "feats.scp", read_scp(data / "feats.scp") | read_scp(tmp_path / "more.scp"))
    assert GmmShard.load(FeatureReader(data, INPUTS), LangDir(lang), 1, 1).failed == {
        "s1-001": "its features are not finite",
        "s2-002": "its features have no frames",
    }


def test_data_without_usable_utterances_is_refused(corpus, tmp_path):
    data, lang = copy_of(corpus, tmp_path)
    write_table(data / "text", dict.fromkeys(read_table(data / "text"), ""))
    with pytest.raises(
        UserError,
        match=(
            "data: no utterance can be used: .*: its transcript is empty .*; run utils/validate_data_dir.py"
        ),
    ):
        train((data, lang), tmp_path / "out")


def test_text_of_other_vocabulary_is_refused(corpus, tmp_path):
    data, lang = copy_of(corpus, tmp_path)
    write_table(data / "text", dict.fromkeys(read_table(data / "text"), "STRANGE WORDS"))
    with pytest.raises(
        UserError, match="data/text: none of its words is in .*words.txt .it begins with 'STRANGE WORDS'."
    ):
        GmmShard.load(FeatureReader(data, INPUTS), LangDir(lang), 1, 1)


def with_constant(corpus, data: Path, columns: list[int]) -> None:
    """Write features whose `columns` are constant, and their statistics."""
    utt2spk, stats = read_table(data / "utt2spk"), {}
    with ArkWriter(data / "feats.ark", data / "feats.scp") as writer:
        for utt, feats in load_all(corpus[0] / "feats.scp").items():
            feats = feats.copy()
            feats[:, columns] = -7.3
            writer.write(utt, feats)
            stats[utt2spk[utt]] = stats.get(utt2spk[utt], 0) + cmvn_stats(feats)
    with ArkWriter(data / "cmvn.ark", data / "cmvn.scp") as writer:
        for speaker, both in sorted(stats.items()):
            writer.write(speaker, both)


@pytest.mark.parametrize("num_ranks, cmvn", [(1, "speaker"), (3, "speaker"), (3, "none")])
def test_constant_columns_are_named(corpus, tmp_path, num_ranks, cmvn):
    data, lang = copy_of(corpus, tmp_path)
    for columns, message in (([2], "column 3 of the 4"), ([1, 3], "2 columns .the first is 2. of the 4")):
        with_constant(corpus, data, columns)
        spec = dataclasses.replace(spec_of((data, lang), tmp_path / "out"), inputs=InputOptions(cmvn=cmvn))
        with pytest.raises(UserError, match=f"data: {message} features with .*: constant in all frames"):
            run_threads(num_ranks, lambda comm: train_rank(spec, comm))


def test_mismatched_alignments_are_refused(corpus, mono):
    shard = GmmShard.load(FeatureReader(corpus[0], INPUTS), LangDir(corpus[1]), 1, 1)
    alignments = read_job_archives(mono)
    num_tids = read_model(mono / "final.mdl")[0].num_tids
    utt = shard.keys[3]
    for bad, message in (
        (alignments[utt][:-2], "frames, its features"),
        (np.full_like(alignments[utt], num_tids + 1), "transition-id"),
    ):
        with pytest.raises(UserError, match=f"ali-dir: the alignment of {utt} has .*{message}"):
            shard.set_alignments(alignments | {utt: bad}, num_tids, "ali-dir")
    report = shard.set_alignments({utt: alignments[utt]}, num_tids, "ali-dir")
    assert report.num_aligned == 1 and len(report.failed) == len(shard.keys) - 1


def align(corpus, model_dir: Path, out: Path, num_jobs: int):
    out.mkdir()
    for job in range(1, num_jobs + 1):
        align_shard(AlignSpec(*corpus, model_dir, out, num_jobs, TRAIN.align, 1.0), job)
    report = merge_reports(out, num_jobs)
    (out / "num_jobs").write_text(f"{num_jobs}\n")
    return report, read_job_archives(out)


def test_finished_system_aligns_data(corpus, mono, tmp_path):
    report, one = align(corpus, mono, tmp_path / "one", 1)
    _, three = align(corpus, mono, tmp_path / "three", 3)
    assert report.num_aligned == 30 and not report.failed
    assert one.keys() == three.keys() and all((one[utt] == three[utt]).all() for utt in one)


def test_features_of_other_dimension_than_model_are_refused(corpus, mono, tmp_path):
    shutil.copytree(mono, tmp_path / "mono")
    InputOptions(deltas=1).save(tmp_path / "mono")
    with pytest.raises(UserError, match="features of dimension 8, but the GMM was trained on dimension 4"):
        align(corpus, tmp_path / "mono", tmp_path / "out", 1)


def test_language_directory_of_other_training_is_refused(corpus, mono, tmp_path):
    shutil.copytree(corpus[1], tmp_path / "lang")
    text = (tmp_path / "lang/phones.txt").read_text()
    (tmp_path / "lang/phones.txt").write_text(text.replace("P1_B ", "Q1_B "))
    with pytest.raises(UserError, match="use the language directory that the model was trained with"):
        check_phones(mono, LangDir(tmp_path / "lang"))
    check_phones(mono, LangDir(corpus[1]))


def step(*words) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, timeout=120
    )


def test_steps_run_from_command_line(corpus, tmp_path):
    options = [
        "--nj",
        2,
        "--num-iters",
        4,
        "--num-gauss",
        50,
        "--max-iter-inc",
        2,
        "--deltas",
        0,
        "--beam",
        30,
        "--retry-beam",
        100,
    ]
    first = step(ROOT / "steps/train_mono.py", *options, *corpus, tmp_path / "mono")
    assert first.returncode == 0, first.stdout + first.stderr
    again = step(ROOT / "steps/train_mono.py", *options, *corpus, tmp_path / "mono")
    assert again.returncode == 0 and "up to date" in again.stdout
    aligned = step(
        ROOT / "steps/align_si.py", "--nj", 2, "--beam", 30, *corpus, tmp_path / "mono", tmp_path / "mono_ali"
    )
    assert aligned.returncode == 0, aligned.stdout + aligned.stderr
    assert len(read_job_archives(tmp_path / "mono_ali")) == 30
    for program, out in (("train_mono.py", "mono"), ("align_si.py", "mono_ali")):
        assert untold(ROOT / "steps" / program, tmp_path / out) == []


def untold(program: Path, out: Path) -> list[str]:
    """Files of a finished output that the program's documentation does not list."""
    printed = ast.get_docstring(ast.parse(program.read_text())).split("Writes")[1].split("\n\n")[0]
    files = (re.sub(r"\.\d+\.", ".JOB.", path.name) for path in out.glob("[!.]*") if path.is_file())
    return [name for name in files if not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", printed)]


def test_missing_features_give_one_sentence(corpus, tmp_path):
    data, lang = copy_of(corpus, tmp_path)
    (data / "feats.scp").unlink()
    ended = step(ROOT / "steps/train_mono.py", data, lang, tmp_path / "mono")
    assert ended.returncode == 1 and not (tmp_path / "mono").exists()
    assert ended.stderr.splitlines() == [f"train_mono.py: error: {data}/feats.scp: no such file or directory"]


def test_single_process_trains_without_mpi(corpus, tmp_path):
    options = TrainOptions(GmmScheduleOptions(num_iters=2, num_gauss=40), TRAIN.align, TRAIN.update)
    train_rank(spec_of(corpus, tmp_path / "out", options), SoloComm())
    assert (tmp_path / "out/final.mdl").exists()
