"""steps/train_dnn.py with two real MPI ranks: a model that scores, a killed rank, resumption, bad
alignments."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from schemes import fitting
from steps_here import run_here
from training_corpora import DIM, make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.objectives.dnn_training import DnnTraining, TrainSpec
from pyasr.train.objectives.rank_training import train_rank

ROOT = Path(__file__).resolve().parents[3]
LENGTHS = {f"{speaker}-{i:02d}": 60 + 7 * i for speaker in "abcdefgh" for i in range(12)}
FLAGS = ["--cmvn", "none", "--hidden-layers", 2, "--hidden-dim", 32, "--minibatch", 48,
         "--learning-rate", 0.05, "--period-frames", 192, "--precision", "float32", "--heldout-share", 0.15,
         "--splice-left", 2, "--splice-right", 2]  # fmt: skip

MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="needs MPI")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", LENGTHS, 6)
    make_alignments(path / "ali", targets)
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path, targets


def command(path, out, *flags):
    words = [
        sys.executable,
        ROOT / "steps" / "train_dnn.py",
        *FLAGS,
        *flags,
        path / "data",
        path / "lang",
        path / "ali",
        out,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return dict(
        args=list(map(str, words)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def parameters(out):
    return torch.load(out / "final.nnet", weights_only=True)["parameters"]


def wait_for(path, process, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end and process.poll() is None, f"no {path}"
        time.sleep(0.02)


def test_unwarpable_features_are_refused_before_ranks_start(corpus, tmp_path):
    with pytest.raises(
        UserError, match="data/feats/options.json: no such file, which --vtlp needs to know the filters"
    ):
        run_here(
            "train_dnn.py",
            *FLAGS,
            "--vtlp",
            0.1,
            corpus[0] / "data",
            corpus[0] / "lang",
            corpus[0] / "ali",
            tmp_path / "out",
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (("--num-ranks", 3, "--parallel", "butterfly"), "butterfly mixing takes 2, 4, 8, ... ranks, not 3"),
        (("--num-ranks", 2, "--parallel", "asgd"), "2 ranks train no faster than 1"),
        (("--parallel", "dpsgd", "--topology", "star"), "--topology 'star': unknown topology"),
    ],
)
def test_unsupported_number_of_ranks_is_refused_before_start(flags, sentence, corpus, tmp_path):
    with pytest.raises(UserError, match=sentence):
        run_here(
            "train_dnn.py",
            *fitting([*FLAGS, *flags]),
            *(corpus[0] / name for name in ("data", "lang", "ali")),
            tmp_path / "dnn",
        )
    assert not list(tmp_path.iterdir())


def rank_processes(directory):
    """Process ids of the ranks that work in `directory`, in order. Their parent processes, which forked them,
    have the same command line."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # harmless: the process has just ended
        if words[1:3] == ["-m", "mpi4py"] and any(word.startswith(str(directory)) for word in words):
            parents[int(process.name)] = parent
    return sorted((pid for pid, parent in parents.items() if parent in parents), key=parents.get)


# of a training with the state of several options
WITH_STATE = ["--num-epochs", 8, "--momentum", 0.5, "--dropout", 0.1, "--schedule", "newbob",
              "--checkpoint-minutes", 0.005]  # fmt: skip


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Output of a training that was not interrupted."""
    out = tmp_path_factory.mktemp("whole") / "dnn"
    run = subprocess.run(**command(corpus[0], out, *WITH_STATE))
    assert run.returncode == 0, run.stdout + run.stderr
    return out


def test_trained_model_scores_frames(corpus, whole):
    path, targets = corpus
    assert {"final.nnet", "final.mdl", "tree", "input.json", "phones.txt", "metrics.jsonl"} <= {
        p.name for p in whole.iterdir()
    }
    assert (
        not (whole / "checkpoint").exists()
        and not list(whole.glob("targets*"))
        and list((whole / "tensorboard").iterdir())
    )
    scorer, reader = load_scorer(whole), FeatureReader(path / "data", InputOptions.load(whole))
    best = [scorer.log_likelihoods(reader[key]).argmax(1) == targets.pdfs_of(key) for key in reader.keys]
    assert np.concatenate(best).mean() > 0.9
    log = (whole / "log" / "train.log").read_text()
    assert "linear scaling: effective 0.05 x 2 = 0.1" in log and "communication" in log


def test_killed_rank_ends_job_and_same_command_resumes(corpus, whole, tmp_path):
    path, _ = corpus
    process = subprocess.Popen(**command(path, tmp_path / "cut", *WITH_STATE, "--max-restarts", 0))
    scratch = tmp_path / "cut.tmp"
    wait_for(scratch / "checkpoint" / "checkpoint.json", process)
    os.kill(rank_processes(scratch)[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "train_dnn.py: error:" in errors and "Traceback" not in errors
    assert not (tmp_path / "cut").exists()
    again = subprocess.run(**command(path, tmp_path / "cut", *WITH_STATE))
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resuming at" in (tmp_path / "cut" / "log" / "train.log").read_text()
    first, second = parameters(whole), parameters(tmp_path / "cut")
    assert all(torch.equal(first[name], second[name]) for name in first)
    finished = subprocess.run(**command(path, tmp_path / "cut", *WITH_STATE))
    assert finished.returncode == 0 and "up to date" in finished.stdout


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_terminated_training_saves_checkpoint(number, status, corpus, tmp_path):
    """Without checkpoints by the clock. The training resumes from there."""
    flags = [
        "--num-epochs",
        1000,
        "--schedule",
        "newbob",
        "--start-halving-gain",
        0,
        "--checkpoint-minutes",
        0,
        "--log-frames",
        50_000,
    ]
    process = subprocess.Popen(**command(corpus[0], tmp_path / "cut", *flags), preexec_fn=listening)
    log = tmp_path / "cut.tmp" / "log" / "train.log"
    wait_for(log.with_name("train.watching"), process)
    wait_until_in("epoch 2", log)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == status and f"run.pl: {log}: saving its state, for at most 20 s\n" in errors
    frames = re.search(
        r"stopped on request; saved at (\d+) frames, run the same command to resume", log.read_text()
    )[1]
    assert (
        not rank_processes(tmp_path)
        and not list(log.parent.glob("train.watching"))
        and not list(log.parent.glob("train.stop"))
    )
    again = subprocess.Popen(**command(corpus[0], tmp_path / "cut", *flags), preexec_fn=listening)
    wait_until_in(f"resuming at {frames} frames", log)
    again.send_signal(number)
    again.communicate(timeout=300)


def listening():
    """Restore signal handling in a step that will be interrupted, also if the tests run in the background of
    a script."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_until_in(words, log, seconds=60):
    end = time.monotonic() + seconds
    while not log.exists() or words not in log.read_text():
        assert time.monotonic() < end, f"no '{words}' in {log}"
        time.sleep(0.05)


def test_mismatched_alignment_is_refused(corpus, tmp_path):
    path, _ = corpus
    shutil.copytree(path / "ali", tmp_path / "ali")
    for key in ("data", "lang"):
        (tmp_path / key).symlink_to(path / key)
    file = tmp_path / "ali" / "ali.1.gz"
    write_int_vectors(file, {key: vector[:-1] for key, vector in read_int_vectors(file).items()})
    run = subprocess.run(**command(tmp_path, tmp_path / "dnn"))
    assert run.returncode == 1 and "does not match" in run.stderr and len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "dnn").exists()


def test_changed_speaker_statistics_recompute_model(corpus, tmp_path, capsys):
    path, targets = corpus
    shutil.copytree(path / "data", tmp_path / "data")

    def normalise(mean):
        with ArkWriter(tmp_path / f"cmvn{mean}.ark", tmp_path / "data" / "cmvn.scp") as writer:
            for speaker in "abcdefgh":
                writer.write(
                    speaker, np.array([[mean] * DIM + [1], [1 + mean * mean] * DIM + [0]], np.float64)
                )

    def is_up_to_date() -> bool:
        run_here(
            "train_dnn.py",
            "--num-epochs",
            1,
            *FLAGS,
            "--cmvn",
            "speaker",
            tmp_path / "data",
            path / "lang",
            path / "ali",
            tmp_path / "dnn",
            threads=True,
        )
        return "up to date" in capsys.readouterr().out

    found = []
    for mean in (0, 0, 1):
        normalise(mean)
        found.append(is_up_to_date())
    assert found == [False, True, False]


def test_truncated_features_are_refused(corpus, tmp_path):
    path, targets = corpus
    shutil.copytree(path / "data", tmp_path / "data")
    table = (path / "data" / "feats.scp").read_text().replace(str(path), str(tmp_path))
    (tmp_path / "data" / "feats.scp").write_text(table)
    archive = tmp_path / "data" / "f.ark"
    archive.write_bytes(archive.read_bytes()[:-1000])
    targets.save(tmp_path / "targets.npz")
    with pytest.raises(UserError, match="f.ark:.*truncated or damaged"):
        train_rank(
            TrainSpec(tmp_path / "data", tmp_path, InputOptions(cmvn="none"), DnnTraining()), SoloComm()
        )
    assert not (tmp_path / "final.nnet").exists()


def test_unknown_scheme_is_refused(corpus, tmp_path):
    run = subprocess.run(**command(corpus[0], tmp_path / "dnn", "--parallel", "telepathy"))
    assert run.returncode == 1 and "no such scheme; choose one of adpsgd, allreduce, " in run.stderr
