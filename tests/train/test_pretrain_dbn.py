"""steps/pretrain_dbn.py: a rank killed with SIGKILL and resumption on MPI ranks, fine-tuning from the DBN,
bad input."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from steps_here import run_here
from test_train_dnn import rank_processes, wait_for
from training_corpora import make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.io.ark import ArkReader, ArkWriter, read_scp
from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.dbn import load_dbn

ROOT = Path(__file__).resolve().parents[2]
INPUT = ["--cmvn", "none", "--splice-left", 1, "--splice-right", 1]
SHAPE = ["--hidden-layers", 2, "--hidden-dim", 24]
FLAGS = [
    *INPUT,
    *SHAPE,
    "--precision",
    "float32",
    "--period-frames",
    300,
    "--checkpoint-frames",
    5000,
    "--num-ranks",
    2,
]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    make_alignments(
        path / "ali",
        make_data(
            path / "data", {f"{speaker}-{i:02d}": 60 + 7 * i for speaker in "abcdef" for i in range(9)}, 6
        ),
    )
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path


def command(data, out, *flags):
    words = [sys.executable, ROOT / "steps" / "pretrain_dbn.py", *FLAGS, *flags, data, out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return dict(
        args=list(map(str, words)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def parameters(out):
    return torch.cat([p.flatten() for rbm in load_dbn(out / DBN_FILE).rbms for p in rbm.parameters()])


@pytest.fixture(scope="module")
def dbn(corpus, tmp_path_factory):
    """A DBN pretrained without interruption, on two ranks in threads."""
    out = tmp_path_factory.mktemp("whole") / "dbn"
    run_here("pretrain_dbn.py", *FLAGS, "--rbm-iter", 6, corpus / "data", out, threads=True)
    assert {path.name for path in out.iterdir()} == {
        ".done.json",
        DBN_FILE,
        "input.json",
        "log",
        "rbm1",
        "rbm2",
    }
    assert not list(out.glob("rbm*/checkpoint"))
    return out


@pytest.mark.skipif(MPIEXEC is None, reason="needs MPI")
def test_killed_rank_ends_job_and_same_command_resumes(corpus, dbn, tmp_path):
    flags = ["--rbm-iter", 6]
    process = subprocess.Popen(**command(corpus / "data", tmp_path / "dbn", *flags, "--max-restarts", 0))
    scratch = tmp_path / "dbn.tmp"
    wait_for(scratch / "rbm1" / "checkpoint" / "checkpoint.json", process)
    os.kill(rank_processes(scratch)[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1 and "pretrain_dbn.py: error:" in errors and "Traceback" not in errors
    assert not (tmp_path / "dbn").exists()
    again = subprocess.run(**command(corpus / "data", tmp_path / "dbn", *flags))
    assert again.returncode == 0, again.stdout + again.stderr
    log = (tmp_path / "dbn" / "log" / "pretrain.log").read_text()
    assert "resuming at" in log and "reconstruction error" in log and "frames/s" in log
    assert torch.equal(parameters(tmp_path / "dbn"), parameters(dbn))


@pytest.mark.parametrize(
    "step, number, how",
    [
        ("train_dnn.py", ["--num-ranks", 1], dict(threads=True)),
        ("simulate_parallel.py", ["--num-learners", 3], {}),
    ],
)
def test_fine_tuning_starts_from_dbn(corpus, dbn, tmp_path, step, number, how):
    flags = [*INPUT, *SHAPE, *number, "--activation", "sigmoid", "--schedule", "newbob",
             "--learning-rate", 0.0005, "--lr-convention", "sum", "--minibatch", 32, "--num-epochs", 2,
             "--heldout-share", 0.15, "--dbn", dbn]  # fmt: skip
    run_here(step, *flags, corpus / "data", corpus / "lang", corpus / "ali", tmp_path / "dnn", **how)
    scorer, started = load_scorer(tmp_path / "dnn"), load_dbn(dbn / DBN_FILE)
    torch.testing.assert_close(scorer.mean, started.mean.repeat(3))
    for layer, rbm in zip(scorer.network.affine_layers, started.rbms):
        assert 0 < (layer.weight - rbm.weight).norm() < 0.3 * rbm.weight.norm()


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (
            ["--hidden-layers", 2, "--hidden-dim", 32],
            "2 layers of 24 sigmoid units; give --hidden-dim 24 --activation sigmoid, or pretrain",
        ),
        (
            [*SHAPE, "--activation", "sigmoid", "--splice-left", 3],
            r"with other input options \(splice_left: 1 -> 3\); give the same options",
        ),
    ],
)
def test_network_not_matching_dbn_is_refused(corpus, dbn, tmp_path, flags, sentence):
    with pytest.raises(UserError, match=sentence):
        run_here(
            "train_dnn.py",
            *INPUT,
            *flags,
            "--dbn",
            dbn,
            corpus / "data",
            corpus / "lang",
            corpus / "ali",
            tmp_path / "dnn",
        )
    assert not (tmp_path / "dnn").exists()


def test_data_without_features_are_refused(corpus, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match="data/feats.scp: no such file"):
        run_here("pretrain_dbn.py", *FLAGS, tmp_path / "data", tmp_path / "dbn", threads=True)
    (tmp_path / "data" / "feats.scp").write_text("")
    (tmp_path / "data" / "utt2spk").write_text("a s\n")
    with pytest.raises(UserError, match="feats.scp is empty|no utterance has"):
        run_here("pretrain_dbn.py", *FLAGS, tmp_path / "data", tmp_path / "dbn", threads=True)
    assert not (tmp_path / "dbn").exists()


def test_non_finite_features_are_named(corpus, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(corpus / "data", data)
    table, reader = read_scp(data / "feats.scp"), ArkReader()
    with ArkWriter(data / "g.ark", data / "feats.scp") as writer:
        for key, place in table.items():
            features = np.array(reader.load(place))
            features[5, 2] = np.nan if key == "c-03" else features[5, 2]
            writer.write(key, features)
    with pytest.raises(UserError, match="c-03 has features that are not finite .*frame 5, column 2"):
        run_here("pretrain_dbn.py", *FLAGS, data, tmp_path / "dbn", threads=True)
    assert not (tmp_path / "dbn").exists()
