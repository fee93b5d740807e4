"""steps/train_dnn.py loses ranks: the remaining ranks resume from the last checkpoint and complete the
model."""

import json
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
from schemes import fitting
from test_train_dnn import rank_processes
from training_corpora import make_alignments, make_data

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.networks.acoustic import load_scorer

ROOT = Path(__file__).resolve().parents[2]
HOST = socket.gethostname()
FLAGS = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 24, "--minibatch", 48,
         "--learning-rate", 0.03, "--period-frames", 96, "--momentum", 0.5, "--precision", "float32",
         "--heldout-share", 0.1, "--splice-left", 1, "--splice-right", 1, "--num-epochs", 25,
         "--checkpoint-frames", 500, "--log-frames", 500]  # fmt: skip
pytestmark = pytest.mark.skipif(
    shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None, reason="needs MPI"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(
        path / "data", {f"{speaker}-{i}": 60 + 7 * i for speaker in "abcdefgh" for i in range(5)}, 6
    )
    make_alignments(path / "ali", targets)
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path, targets


def start(corpus, out, *flags):
    path, _ = corpus
    words = [
        sys.executable,
        ROOT / "steps" / "train_dnn.py",
        *fitting([*FLAGS, *flags]),
        path / "data",
        path / "lang",
        path / "ali",
        out,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, words)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_ranks(process, out, num, after=""):
    """(processes of `num` training ranks, their checkpoint.json), as soon as they have written a checkpoint
    other than `after`."""
    index = out.with_name(out.name + ".tmp") / "checkpoint" / "checkpoint.json"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        text = index.read_text() if index.exists() else ""
        if text.count(".rank-") == num and text != after:
            return rank_processes(out.with_name(out.name + ".tmp")), text
        time.sleep(0.01)
    pytest.fail(f"no {num} ranks: {process.communicate()}")


def wait_for(file, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def accuracy(corpus, out):
    path, targets = corpus
    scorer, reader = load_scorer(out), FeatureReader(path / "data", InputOptions.load(out))
    return np.concatenate(
        [scorer.log_likelihoods(reader[key]).argmax(1) == targets.pdfs_of(key) for key in reader.keys]
    ).mean()


def test_training_continues_after_lost_ranks(corpus, tmp_path):
    """One of three gossiping ranks is stopped for a short time, which only costs time. Then a random rank is
    killed at a random moment. Then one of the two remaining ranks is stopped for longer than the time-out."""
    random, out = np.random.default_rng(os.getpid()), tmp_path / "dnn"
    process = start(corpus, out, "--num-ranks", 3, "--parallel", "fixed-ring", "--rank-timeout", 1.5)
    ranks, before = wait_for_ranks(process, out, 3)
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(ranks[1], signal.SIGCONT)
    wait_for_ranks(process, out, 3, before)
    time.sleep(random.uniform(0, 0.2))
    os.kill(ranks[random.integers(3)], signal.SIGKILL)
    ranks, _ = wait_for_ranks(process, out, 2)
    os.kill(ranks[random.integers(2)], signal.SIGSTOP)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, said + errors
    lost = [
        re.search(
            rf"rank \d of {num} on {HOST} {how}[^;]*; {go_on} from (\d+) frames, restart {n} of at most 2 "
            r"\(log until then: (.*)\)",
            said,
        )
        for n, num, how, go_on in (
            (1, 3, "died without an error message", "2 ranks continue"),
            (2, 2, "did not run for more than 1.5 s", "1 rank continues"),
        )
    ]
    assert all(lost) and 0 < int(lost[0][1]) < int(lost[1][1]), said
    for name, num in (("train.1", 3), ("train.2", 2), ("train", 1)):
        assert f"linear scaling: effective 0.03 x {num} = " in (out / "log" / f"{name}.log").read_text()
    assert f"resuming at {lost[1][1]} frames" in (out / "log" / "train.log").read_text()
    assert accuracy(corpus, out) > 0.9


@pytest.mark.parametrize(
    "scheme, victim, left", [(["adpsgd"], 1, 2), (["asgd"], 0, 1)], ids=["adpsgd", "asgd"]
)
def test_asynchronous_epoch_continues_after_lost_rank(corpus, tmp_path, scheme, victim, left):
    """One of three ranks, with asgd the server, is killed within the first epoch: the job ends within 10 s.
    Two ranks resume within the epoch, from the last checkpoint. With asgd, one rank resumes, because two
    would be a server and a single shard."""
    out = tmp_path / "dnn"
    process = start(corpus, out, "--num-ranks", 3, "--parallel", *scheme, "--minibatch", 4,
                    "--hidden-dim", 512, "--num-epochs", 2, "--checkpoint-frames", 400,
                    "--lr-scaling", "none")  # fmt: skip
    ranks, _ = wait_for_ranks(process, out, 3)
    os.kill(ranks[victim], signal.SIGKILL)
    wait_for(out.with_name("dnn.tmp") / "log" / "train.1.log", 10)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, said + errors
    go_on = f"{left} ranks continue" if left > 1 else "1 rank continues"
    lost = re.search(
        rf"rank {victim} of 3 on {HOST} died without an error message[^;]*; {go_on} from (\d+) frames", said
    )
    assert lost, said
    frames = int(lost[1])
    epochs = [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "train_objective" in line
    ]
    assert [line["epoch"] for line in epochs] == [1, 2] and 400 <= frames < epochs[0]["frames"], said
    assert (
        f"resuming at {frames} frames, epoch 1, with {left} ranks instead of 3"
        in (out / "log" / "train.log").read_text()
    )
    assert accuracy(corpus, out) > 0.9
