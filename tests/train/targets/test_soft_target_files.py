"""Files of soft targets: equality with the teacher, a single computation for any number of ranks, incomplete
files, memory and disk space."""

import errno
import logging
import os
import re
import resource
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from steps_here import run_here
from toy_jobs import CPU, NUM_PDFS, SEED
from training_corpora import DIM, make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.minibatch_stream import ResidentFrames, StreamedFrames, open_frames
from pyasr.train.job.rank_job import write_model
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.targets import soft_target_files
from pyasr.train.targets.soft_target_files import SoftTargetFiles
from pyasr.train.targets.soft_targets import SoftTargets, Teacher, TeacherOptions

LENGTHS = {f"a-{i:02d}": 40 + i for i in range(12)}


def make_teacher(path: Path, num_pdfs: int = NUM_PDFS) -> TeacherOptions:
    """A teacher whose posteriors differ in every frame."""
    path.mkdir()
    network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), DIM, num_pdfs)
    random = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.normal_(generator=random)
    write_model(SoloComm(), path, network, (torch.zeros(DIM), torch.ones(DIM)), torch.zeros(num_pdfs))
    InputOptions(cmvn="none").save(path)
    return TeacherOptions(path, teacher_mass=0.9)


@pytest.fixture
def corpus(tmp_path):
    """(teacher, data, targets, directory): the arguments of `SoftTargetFiles` except the communicator."""
    targets = make_data(tmp_path / "data", LENGTHS, NUM_PDFS)
    targets.heldout[3] = True
    (tmp_path / "out").mkdir()
    return make_teacher(tmp_path / "teacher"), tmp_path / "data", targets, tmp_path / "out"


@pytest.fixture
def teacher_calls(monkeypatch):
    """Utterances for which teachers have computed targets."""
    table, keys = Teacher.table, []
    monkeypatch.setattr(
        Teacher, "table", lambda teacher, key, pdfs: (keys.append(key), table(teacher, key, pdfs))[1]
    )
    return keys


def prepare(corpus, num_ranks: int = 2, from_all: bool = False) -> list:
    """Files of ranks that share the utterances, or that all learn from all of them except rank 0, which is a
    server."""

    def rank(comm):
        share = (None if comm.rank == 0 else (0, 1)) if from_all else (comm.rank, comm.size)
        return SoftTargetFiles(*corpus, comm).of(share)

    return run_threads(num_ranks, rank)


def everything(tables) -> tuple[list, list]:
    """Counts and entries of successive tables."""
    return [
        [row for table in tables for row in part(table).tolist()]
        for part in (lambda table: table.first.diff(), lambda table: table.entries)
    ]


def said(corpus, keys) -> tuple[list, list]:
    """Targets computed directly by the teacher."""
    options, data, targets, _ = corpus
    teacher = Teacher(options, data, NUM_PDFS)
    return everything([teacher.table(key, targets.pdfs_of(key))[0] for key in keys])


@pytest.mark.parametrize("num_ranks, from_all", [(1, False), (2, False), (13, False), (3, True)])
def test_files_hold_posteriors_of_teacher(corpus, num_ranks, from_all, teacher_calls):
    files = prepare(corpus, num_ranks, from_all)
    targets = corpus[2]
    assert sorted(teacher_calls) == [key for key in LENGTHS if key != "a-03"]
    for rank, file in enumerate(files):
        if from_all and rank == 0:
            assert file is None
            continue
        assert file.keys == targets.shard(*((0, 1) if from_all else (rank, num_ranks)), heldout=False)
        num = len(file.keys)
        whole, some = file.table(np.arange(num)), np.arange(0, num - 1, 2)
        assert whole.on_disk and whole.nbytes == 0 and everything([whole]) == said(corpus, file.keys)
        if not num:
            continue
        part = file.table(some)
        assert part.nbytes == file.num_bytes[some].sum() + 8 and everything([part]) == said(
            corpus, [file.keys[i] for i in some]
        )
    names = {name.removeprefix("soft_targets.") for name in os.listdir(corpus[3])}
    parts = ["0-of-1"] if from_all else [f"{rank}-of-{num_ranks}" for rank in range(num_ranks)]
    assert names == {f"{part}.npz{end}" for part in parts for end in ("", ".first", ".entries")}


def test_quality_of_teacher_is_logged(corpus, caplog):
    """Compared with its posteriors, frame by frame."""
    logging.getLogger("pyasr").propagate = True
    options, data, targets, _ = corpus
    teacher, q, agreeing = Teacher(options, data, NUM_PDFS), [], []
    for key in targets.shard(0, 1, heldout=False):
        p = np.exp(teacher.model.log_posteriors(teacher.reader[key]).astype(np.float64))
        agreeing += (p.argmax(1) == targets.pdfs_of(key)).tolist()
        for row in -np.sort(-p):
            kept = row[: np.searchsorted(row.cumsum(), 0.9) + 1]
            q.append(kept / kept.sum())
    with caplog.at_level("INFO"):
        prepare(corpus, 2)
    assert f"agrees with the alignment in {np.mean(agreeing):.2%} of the training frames" in caplog.text
    objective = sum(float(part @ np.log(part)) for part in q) / len(q)
    assert f"{np.mean(list(map(len, q))):.1f} pdfs per frame have 90% of the mass" in caplog.text
    output = float(re.search(r"the objective of a student with the same posteriors is (\S+)", caplog.text)[1])
    assert output == pytest.approx(objective, abs=1e-4)
    assert re.search(
        rf"the targets of {len(q)} frames will take about 0\.0*[1-9][0-9]? MB in {corpus[3]}", caplog.text
    )
    assert re.search(
        rf"the targets of {len(q)} training frames take 0\.0*[1-9][0-9]? MB in {corpus[3]}", caplog.text
    )


@pytest.mark.parametrize(
    "before, after",
    [
        ((2, False), (2, False)),
        ((3, True), (3, True)),
        ((2, False), (3, False)),
        ((3, False), (1, False)),
        ((2, False), (3, True)),
        ((3, True), (2, False)),
    ],
)
def test_teacher_runs_once(corpus, before, after, teacher_calls):
    """Also if the job continues with another number of ranks."""
    prepare(corpus, *before)
    teacher_calls.clear()
    files = [file for file in prepare(corpus, *after) if file]
    assert teacher_calls == []
    for file in files:
        assert everything([file.table(np.arange(len(file.keys)))]) == said(corpus, file.keys)
    assert len(list(corpus[3].iterdir())) == 3 * (1 if after[1] else after[0])


def test_incomplete_file_is_not_used(corpus, teacher_calls, monkeypatch):
    """The complete file of the other rank is used."""
    own, table = corpus[2].shard(1, 2, heldout=False), Teacher.table

    def dying(teacher, key, pdfs):
        if key == own[3]:
            raise KeyboardInterrupt
        return table(teacher, key, pdfs)

    monkeypatch.setattr(Teacher, "table", dying)
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus)
    monkeypatch.setattr(Teacher, "table", table)
    assert (corpus[3] / "soft_targets.1-of-2.npz.entries").stat().st_size > 0
    teacher_calls.clear()
    monkeypatch.setattr(
        Teacher, "table", lambda teacher, key, pdfs: (teacher_calls.append(key), table(teacher, key, pdfs))[1]
    )
    files = prepare(corpus)
    assert set(own) <= set(teacher_calls)
    for file in files:
        assert everything([file.table(np.arange(len(file.keys)))]) == said(corpus, file.keys)


@pytest.mark.parametrize("harm", ["cut", "other mass", "other teacher", "no index", "garbage"])
def test_file_of_other_training_is_replaced(corpus, harm, teacher_calls, tmp_path):
    file = prepare(corpus, 1)[0]
    path, options = corpus[3] / "soft_targets.0-of-1.npz", corpus[0]
    if harm == "cut":
        with path.with_name(path.name + ".entries").open("r+b") as f:
            f.truncate(20)
    elif harm == "other mass":
        options = TeacherOptions(options.teacher, teacher_mass=0.5)
    elif harm == "other teacher":
        torch.manual_seed(5)
        network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), DIM, NUM_PDFS)
        write_model(
            SoloComm(), options.teacher, network, (torch.zeros(DIM), torch.ones(DIM)), torch.zeros(NUM_PDFS)
        )
    elif harm == "no index":
        path.unlink()
    else:
        path.write_bytes(b"garbage")
    teacher_calls.clear()
    corpus = options, *corpus[1:]
    again = prepare(corpus, 1)[0]
    assert teacher_calls == file.keys and everything([again.table(np.arange(11))]) == said(corpus, file.keys)


def shard_of(corpus, file) -> Shard:
    shard = Shard(
        FeatureReader(corpus[1], InputOptions(cmvn="none")),
        corpus[2],
        file.keys,
        Packing(1, 1),
        Plain(torch.float32),
    )
    shard.learn_from(file)
    return shard


def dense(minibatches) -> list[tuple]:
    """(input, q, best) of every frame, sorted."""
    rows = []
    for x, targets in minibatches:
        assert len(x) == targets.numel()
        q = torch.zeros(len(x), NUM_PDFS)
        q[targets.frame, targets.pdf] = targets.weight
        rows += [(*a.tolist(), *b.tolist(), best.item()) for a, b, best in zip(x, q, targets.best)]
    return sorted(rows)


@pytest.mark.parametrize("size", [16, 150])
def test_streamed_frames_have_their_soft_targets(corpus, size):
    """Equal to those in memory, once each. A block's targets count for `--max-store-mb`, and minibatches
    continue over block boundaries."""
    soft = prepare(corpus, 1)[0]
    shard = shard_of(corpus, soft)
    resident = open_frames(shard, CPU, torch.float32, 0, SEED, 0)
    assert isinstance(resident, ResidentFrames) and resident.store.targets.on_disk
    max_bytes = int(shard.num_bytes().sum()) - 1
    streamed = open_frames(shard, CPU, torch.float32, max_bytes, SEED, 0)
    assert isinstance(streamed, StreamedFrames) and len(streamed.plan(1)) > 2
    blocks = [shard.store(members, 1) for members in streamed.plan(1)]
    held = [block.frames.nbytes + block.targets.nbytes for block in blocks]
    assert (
        2 * max(held) <= max_bytes
        and sum(held) > sum(block.frames.nbytes for block in blocks) + soft.num_bytes.sum()
    )
    expected = dense(resident.minibatches(size, 1))
    for epoch in (1, 2):
        found = list(streamed.minibatches(size, epoch))
        assert [len(x) for x, _ in found[:-1]] == [size] * ((streamed.num_frames - 1) // size) and dense(
            found
        ) == expected
    assert (
        len(expected) == shard.num_frames
        and streamed.sample_store(60).targets[torch.arange(60)].numel() == 60
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("max_bytes", [0, 20_000])
def test_soft_targets_are_copied_to_device(corpus, max_bytes):
    shard = shard_of(corpus, prepare(corpus, 1)[0])
    here, there = (
        open_frames(shard, torch.device(kind), torch.float32, max_bytes, SEED, 0) for kind in ("cpu", "cuda")
    )
    on_host = (
        (x.cpu(), SoftTargets(*(getattr(targets, name).cpu() for name in ("frame", "pdf", "weight", "best"))))
        for x, targets in there.minibatches(16, 1)
    )
    found, expected = (
        torch.tensor(dense(minibatches), dtype=torch.float64)
        for minibatches in (on_host, here.minibatches(16, 1))
    )
    # a GPU multiplies by the rounded reciprocal instead of dividing
    torch.testing.assert_close(found, expected, rtol=2.0**-22, atol=0.0)


def test_insufficient_disk_space_is_reported_after_first_utterances(corpus, monkeypatch, teacher_calls):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(soft_target_files, "_TRIED_FRAMES", 100)
    monkeypatch.setattr(soft_target_files.shutil, "disk_usage", lambda path: usage(1000))
    found = (
        r"the teacher's targets take about 0\.\d+ MB more, 0\.0010 MB are free; free some space and run "
        r"the same command again, or lower"
    )
    with pytest.raises(UserError, match=f"^{corpus[3]}: {found} --teacher-mass$"):
        prepare(corpus, 1)
    assert teacher_calls == ["a-00", "a-01", "a-02"] and not list(corpus[3].glob("*.npz"))


def test_full_disk_gives_one_sentence(corpus, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError,
        match=(
            r"soft_targets.0-of-1.npz.first: the disk is full; free some space and run the same command "
            r"again"
        ),
    ):
        prepare(corpus, 1)
    assert not list(corpus[3].glob("*.npz"))


PROGRAM = """
from pathlib import Path
from test_soft_target_files import make_teacher, measured
print(*measured(Path({directory!r})))
"""


def measured(directory: Path) -> tuple[float, float, float]:
    """(growth of the process in MB from few to many prepared utterances, MB of the targets of both)."""
    sizes, peaks = [], []
    options = TeacherOptions(make_teacher(directory / "teacher", 400).teacher, teacher_mass=1.0)
    for num in (30, 200):
        targets = make_data(directory / f"data{num}", {f"a-{i:03d}": 400 for i in range(num)}, 400)
        (directory / str(num)).mkdir()
        file = SoftTargetFiles(
            options, directory / f"data{num}", targets, directory / str(num), SoloComm()
        ).of((0, 1))
        sizes.append(file.num_bytes.sum() / 1e6)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
    return peaks[1] - peaks[0], *sizes


def test_memory_does_not_grow_with_utterances(tmp_path, jobs_import_tests):
    program = PROGRAM.format(directory=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    grown, few, many = map(float, done.stdout.split())
    assert many > 50 > 10 > few and grown < many / 4, done.stdout


def test_training_with_teacher_removes_its_files(corpus, tmp_path, capfd):
    """From the step: with streamed frames; no files of the targets remain in the model's directory."""
    make_alignments(tmp_path / "ali", corpus[2])
    teacher, lang = corpus[0].teacher, tmp_path / "lang"
    (teacher / "tree").write_bytes((tmp_path / "ali" / "tree").read_bytes())
    lang.mkdir()
    (lang / "phones.txt").write_text("<eps> 0\n")
    run_here("train_dnn.py", "--cmvn", "none", "--teacher", teacher, "--max-store-mb", 1, "--num-epochs", 1,
             "--hidden-dim", 8, "--heldout-by", "utterance", "--heldout-share", 0.2, corpus[1], lang,
             tmp_path / "ali", tmp_path / "dnn", threads=True)  # fmt: skip
    assert (tmp_path / "dnn" / "final.nnet").exists()
    assert not [path for path in (tmp_path / "dnn").rglob("*") if "soft_targets" in path.name]
