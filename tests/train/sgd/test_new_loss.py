"""The new loss of docs/extending/loss.md: its two files, copied from the page, on toy data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from page_files import write_files
from steps_here import run_here
from toy_jobs import power_cut
from training_corpora import make_training_dirs

from pyasr.base.errors import UserError
from pyasr.nn.networks.acoustic import load_model
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.sgd.captured_step import reasons_not_captured
from pyasr.train.sgd.learner import Learner
from pyasr.train.steps.loss import Loss

ROOT = Path(__file__).resolve().parents[3]
NUM_PDFS = 5
FLAGS = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 16, "--minibatch", 32,
         "--learning-rate", 0.1, "--period-frames", 64, "--precision", "float32", "--heldout-share", 0.2,
         "--num-epochs", 3, "--checkpoint-frames", 200, "--momentum", 0.5]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    make_training_dirs(path, NUM_PDFS)
    return path


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Directory of the two files."""
    path = tmp_path_factory.mktemp("local")
    assert write_files("loss.md", path) == ["focal.py", "train_focal.py"]
    return path


@pytest.fixture
def focal(local, monkeypatch):
    monkeypatch.syspath_prepend(local)
    return Loss("focal:Focal", {"gamma": 2.0}).make()


def train(local, corpus, out, *flags):
    run_here(
        "train_focal.py",
        *FLAGS,
        *flags,
        *(corpus / name for name in ("data", "lang", "ali")),
        out,
        folder=local,
        threads=True,
    )


def parameters(out) -> torch.Tensor:
    return torch.cat(
        [value.flatten() for value in load_model(out / "final.nnet").network.state_dict().values()]
    )


def objectives(out) -> list[float]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["heldout_objective"] for line in lines if "heldout_objective" in line]


def test_new_loss_is_learned_and_resumes_with_same_bits(focal, local, corpus, tmp_path, capsys):
    """On two ranks. The loss is lower than the cross-entropy, and another gamma changes it."""
    train(local, corpus, tmp_path / "whole")
    with power_cut(Learner, 25):
        train(local, corpus, tmp_path / "cut")
    train(local, corpus, tmp_path / "cut")
    assert "resuming at" in capsys.readouterr().out
    assert torch.equal(parameters(tmp_path / "whole"), parameters(tmp_path / "cut"))
    first, *_, last = objectives(tmp_path / "whole")
    assert first < last and last > -0.6  # the initial model is at -1.03
    train(local, corpus, tmp_path / "other", "--gamma", 1)
    assert objectives(tmp_path / "other")[-1] != objectives(tmp_path / "whole")[-1]
    with pytest.raises(UserError, match="gamma"):
        train(local, corpus, tmp_path / "whole", "--gamma", 3)


def test_mpi_ranks_import_loss_class(local, corpus, tmp_path):
    """The step runs as a program; ranks import the class that the spec names."""
    out, named = tmp_path / "out", (corpus / name for name in ("data", "lang", "ali"))
    command = list(
        map(str, [sys.executable, local / "train_focal.py", *FLAGS, "--num-epochs", 1, *named, out])
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(local), str(ROOT)])}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    spec = json.loads((out / "log/train.spec.json").read_text())
    assert (
        spec["loss"] == {"criterion": "focal:Focal", "arguments": {"gamma": 2.0}}
        and len(objectives(out)) == 1
    )


def test_loss_equals_documented_formula(focal):
    """The loss is summed over frames with targets only, and its derivative is correct; gamma 0 is the
    cross-entropy."""
    logits = torch.randn(7, NUM_PDFS, dtype=torch.float64, requires_grad=True)
    pdfs = torch.tensor([0, 4, 2, NO_TARGET, 1, 1, 3])
    p = torch.stack([logits[i].softmax(0)[pdf] for i, pdf in enumerate(pdfs.tolist()) if pdf != NO_TARGET])
    torch.testing.assert_close(focal.of_frames(logits, pdfs), -((1 - p) ** 2 * p.log()).sum())
    assert torch.autograd.gradcheck(lambda x: focal.of_frames(x, pdfs), logits)


def test_options_that_need_cross_entropy_are_refused(focal, local, corpus, tmp_path):
    (tmp_path / "x.net").write_text("lstm cells=4")
    words = [corpus / name for name in ("data", "lang", "ali")]
    with pytest.raises(
        UserError,
        match="--carry-state: it needs the cross-entropy, but the criterion of this step is focal:Focal",
    ):
        run_here(
            "train_focal.py",
            "--network",
            tmp_path / "x.net",
            "--carry-state",
            "true",
            *words,
            tmp_path / "out",
            folder=local,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name, sentence",
    [
        (
            "no_such_module:Loss",
            "no_such_module:Loss: no module no_such_module; add its directory to PYTHONPATH",
        ),
        ("pyasr.train.sgd.criterion:NoSuchLoss", "pyasr.train.sgd.criterion:NoSuchLoss: no such function"),
    ],
)
def test_missing_class_is_named(name, sentence):
    with pytest.raises(UserError, match=sentence):
        Loss(name).make()


def test_step_names_training_of_its_own(local, corpus, tmp_path, monkeypatch):
    """A subclass of `DnnRank` outside pyasr with another criterion, which `objective` names."""
    own = tmp_path / "own"
    own.mkdir()
    for folder in (local, own):
        monkeypatch.syspath_prepend(folder)
    train(local, corpus, tmp_path / "expected", "--gamma", 1, "--num-epochs", 1)
    (own / "plain.py").write_text(
        "from focal import Focal\n"
        "from pyasr.train.objectives.dnn_training import DnnRank\n\n\n"
        "class PlainRank(DnnRank):\n    def make_criterion(self):\n        return Focal(1.0)\n"
    )
    step = (local / "train_focal.py").read_text()
    loss = "    @property\n    def loss("
    assert loss in step
    (own / "train_focal.py").write_text(step.replace(loss, f'    objective = "plain:PlainRank"\n\n{loss}'))
    train(own, corpus, tmp_path / "out", "--num-epochs", 1)
    assert torch.equal(parameters(tmp_path / "out"), parameters(tmp_path / "expected"))


def test_captured_cross_entropy_steps_are_not_used(focal):
    """Captured steps of plain networks compute the cross-entropy themselves, so they must not be used."""
    from toy_jobs import with_options

    from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward

    learner = Learner(
        FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), 4, NUM_PDFS),
        with_options().learner,
        criterion=focal,
    )
    assert reasons_not_captured(learner) == "the criterion is not the cross-entropy of frames"
