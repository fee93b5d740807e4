"""steps/train_dnn.py loses ranks on the way: those that are left go on from the last checkpoint, to a complete model."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from corpora import make_alignments, make_data
from test_train_dnn import rank_processes

from pyasr.base.job_options import JobOptions
from pyasr.cluster.jobs import run_ranks
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.acoustic import load_scorer

ROOT = Path(__file__).resolve().parents[2]
HOST = socket.gethostname()
FLAGS = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 24, "--minibatch", 48, "--learning-rate", 0.03, "--period-frames", 96,
         "--momentum", 0.5, "--precision", "float32", "--heldout-share", 0.1, "--splice-left", 1, "--splice-right", 1, "--num-epochs", 25,
         "--checkpoint-frames", 500, "--log-frames", 500]  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None, reason="needs MPI")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", {f"{speaker}-{i}": 60 + 7 * i for speaker in "abcdefgh" for i in range(5)}, 6)
    make_alignments(path / "ali", targets)
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path, targets


def start(corpus, out, *flags):
    path, _ = corpus
    words = [sys.executable, ROOT / "steps" / "train_dnn.py", *FLAGS, *flags, path / "data", path / "lang", path / "ali", out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(list(map(str, words)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_ranks(process, out, num, after=""):
    """The processes of `num` ranks that train, once they have written a checkpoint of their own; `after` was there before."""
    index, deadline = out.with_name(out.name + ".tmp") / "checkpoint" / "checkpoint.json", time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        text = index.read_text() if index.exists() else ""
        if text.count(".rank-") == num and text != after:
            return rank_processes(out.with_name(out.name + ".tmp"))
        time.sleep(0.01)
    pytest.fail(f"no {num} ranks: {process.communicate()}")


def accuracy(corpus, out):
    path, targets = corpus
    scorer, reader = load_scorer(out), FeatureReader(path / "data", InputOptions.load(out))
    return np.concatenate([scorer.log_likelihoods(reader[key]).argmax(1) == targets.pdfs_of(key) for key in reader.keys]).mean()


def test_killed_ranks(corpus, tmp_path):
    """Three ranks, of which one is killed, then one of the two that are left: any of them, at any moment."""
    random, out = np.random.default_rng(os.getpid()), tmp_path / "dnn"
    process = start(corpus, out, "--num-ranks", 3)
    for num in (3, 2):
        ranks = wait_for_ranks(process, out, num)
        time.sleep(random.uniform(0, 0.2))
        os.kill(ranks[random.integers(num)], signal.SIGKILL)
    said, errors = process.communicate(timeout=30)
    assert process.returncode == 0, said + errors
    words = r"died without a word: [^;]*; {} from (\d+) frames, restart {} of at most 2 \(log until then: {}\)"
    lost = [re.search(rf"rank \d of {num} on {HOST} " + words.format(go_on, n, out.with_name("dnn.tmp") / f"log/train.{n}.log"), said)
            for n, num, go_on in ((1, 3, "2 ranks go on"), (2, 2, "1 rank goes on"))]  # fmt: skip
    assert all(lost) and 0 < int(lost[0][1]) < int(lost[1][1]), said
    for name, num in (("train.1", 3), ("train.2", 2), ("train", 1)):
        assert f"linear scaling: effective 0.03 x {num} = " in (out / "log" / f"{name}.log").read_text()
    assert f"resuming at {lost[1][1]} frames" in (out / "log" / "train.log").read_text()
    assert accuracy(corpus, out) > 0.9


def test_stopped_ranks(corpus, tmp_path):
    """A rank that is continued in time has cost time alone; one that is not is lost. The same command with fewer ranks takes the job up."""
    out, scratch = tmp_path / "dnn", tmp_path / "dnn.tmp"
    process = start(corpus, out, "--num-ranks", 3, "--parallel", "fixed-ring", "--rank-timeout", 1.5, "--max-restarts", 0)
    rank = wait_for_ranks(process, out, 3)[1]
    os.kill(rank, signal.SIGSTOP)
    time.sleep(0.3)
    before = (scratch / "checkpoint" / "checkpoint.json").read_text()
    os.kill(rank, signal.SIGCONT)
    rank = wait_for_ranks(process, out, 3, before)[2]
    os.kill(rank, signal.SIGSTOP)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1 and time.monotonic() - begin < 10
    assert re.search(rf"error: its job failed: rank \d of 3 on {HOST} stood still for more than 1.5 s: it was stopped", errors), errors
    assert not out.exists() and not rank_processes(scratch)
    said, errors = start(corpus, out, "--num-ranks", 2, "--parallel", "fixed-ring").communicate(timeout=30)
    assert "with 2 ranks instead of 3" in (out / "log" / "train.log").read_text(), said + errors
    assert accuracy(corpus, out) > 0.9


def test_uneven_ranks_end_alike(tmp_path, monkeypatch):
    """1, 2, 3, 4, 5 and 8 ranks, with shards of 10, 10, 3 and no utterances."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}")
    run_ranks(JobOptions(), tmp_path / "log" / "x.log", "toy_ranks:train_groups", JobOptions(cmd=str(tmp_path)), 8)
    told = dict(line.split(": ") for line in (tmp_path / "told").read_text().splitlines())
    assert len(told) == 12 and set(told.values()) == {"alike"}
