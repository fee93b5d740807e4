"""The verdict of a simulation on its network: it learns, has only the priors, is worse than guessing, or is
not finite."""

import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from schemes import fitting
from training_corpora import make_alignments, make_data

sys.path.append(str(Path(__file__).parents[2]))
from steps_here import run_here  # noqa: E402

from pyasr.base.errors import UserError  # noqa: E402
from pyasr.io.ark import ArkWriter, load_matrix, read_scp  # noqa: E402
from pyasr.nn.networks.acoustic import load_scorer  # noqa: E402
from pyasr.train.simulate.verdict import Guessing, guessing, verdict  # noqa: E402
from pyasr.train.targets.pdf_targets import Targets  # noqa: E402

NUM_PDFS = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Pdf 0 in about half of the frames; `deaf` has the same data with features that carry no information."""
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(
        path / "data", {f"{speaker}-{i}": 80 + i for speaker in "abcdef" for i in range(6)}, NUM_PDFS
    )
    shutil.copytree(path / "data", path / "deaf")
    targets.pdfs[:] = np.where(np.arange(len(targets.pdfs)) // 7 % 2, 0, targets.pdfs)
    make_alignments(path / "ali", targets)
    features = {key: load_matrix(rx) for key, rx in read_scp(path / "data" / "feats.scp").items()}
    rng = np.random.default_rng(5)
    with ArkWriter(path / "deaf" / "f.ark", path / "deaf" / "feats.scp") as writer:
        for key, matrix in features.items():
            writer.write(
                key, np.zeros_like(matrix) + rng.standard_normal((len(matrix), 1)).astype(np.float32)
            )
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path


def words(corpus, out, *flags, data="data") -> list:
    return ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 16, "--num-epochs", 3, "--minibatch", 16,
            "--heldout-share", 0.2, "--precision", "float32", "--device", "cpu",
            *fitting(["--period-frames", 64, "--log-frames", 200, *flags]), corpus / data, corpus / "lang",
            corpus / "ali", out]  # fmt: skip


def simulated(corpus, out, *flags, data="data") -> dict:
    run_here("simulate_parallel.py", "--num-learners", 4, *words(corpus, out, *flags, data=data))
    return json.loads((out / "simulation.json").read_text())


def test_learning_network_has_verdict_learns(corpus, tmp_path):
    found = simulated(corpus, tmp_path / "out")
    assert (
        found["verdict"] == "learns"
        and -found["history"][-1][1] < 0.9 * found["guessing"]["priors"] < found["guessing"]["uniform"]
    )
    assert found["guessing"]["uniform"] == pytest.approx(math.log(NUM_PDFS))


def test_network_without_input_has_verdict_priors(corpus, tmp_path):
    """Its loss is the recorded loss of guessing by the priors."""
    found = simulated(corpus, tmp_path / "out", data="deaf")
    assert found["verdict"] == "stuck at the priors" and found["diverged"] is None
    assert -found["history"][-1][1] == pytest.approx(found["guessing"]["priors"], rel=0.05)
    assert found["guessing"]["priors"] < 0.95 * found["guessing"]["uniform"]


def test_verdict_after_temporary_divergence(corpus, tmp_path):
    """The loss of intervals is several times ln 6 at first."""
    rate = ["--activation", "tanh", "--learning-rate", 5]
    found = simulated(corpus, tmp_path / "simulated", *rate)
    lines = [json.loads(line) for line in (tmp_path / "simulated" / "metrics.jsonl").read_text().splitlines()]
    assert min(line.get("objective", 0.0) for line in lines) < -2 * math.log(NUM_PDFS + 1)
    assert (
        found["diverged"] is None
        and len(found["history"]) == 4
        and load_scorer(tmp_path / "simulated").num_pdfs == NUM_PDFS
    )
    expected = verdict(-found["history"][-1][1], Guessing(**found["guessing"]))
    assert found["verdict"] == expected
    with pytest.raises(UserError, match="training has diverged"):
        run_here("train_dnn.py", *words(corpus, tmp_path / "stopped", *rate), threads=True)
    run_here(
        "train_dnn.py",
        "--stop-at-divergence",
        "false",
        *words(corpus, tmp_path / "trained", *rate),
        threads=True,
    )
    assert load_scorer(tmp_path / "trained").num_pdfs == NUM_PDFS


def test_verdict_uses_model_that_schedule_returns_to(corpus, tmp_path):
    found = simulated(
        corpus, tmp_path / "out", "--schedule", "newbob", "--activation", "tanh", "--learning-rate", 5
    )
    best = max(objective for _, objective, _ in found["history"])
    assert best > found["history"][-1][1]
    assert found["verdict"] == verdict(-best, Guessing(**found["guessing"]))


def test_guessing_losses_equal_formulas():
    """For two held-out utterances; one is added to each count of training frames."""
    targets = Targets(
        ["a", "b", "c"],
        np.array([0, 4, 6, 9]),
        np.array([0, 0, 0, 1, 1, 2, 0, 0, 2], np.int32),
        np.array([False, True, True]),
        4,
    )
    priors = np.array([4, 2, 1, 1]) / 8
    expected = -(np.log(priors[1]) + 2 * np.log(priors[2]) + 2 * np.log(priors[0])) / 5
    assert guessing(targets) == pytest.approx((expected, math.log(4)))
    targets.heldout[:] = False
    assert guessing(targets) is None


@pytest.mark.parametrize(
    "loss, message",
    [
        (1.0, "learns"),
        (3.91, "learns"),
        (3.93, "stuck at the priors"),
        (4.0, "stuck at the priors"),
        (5.09, "stuck at the priors"),
        (5.11, "worse than guessing"),
        (1e30, "worse than guessing"),
        (math.inf, "not a number"),
        (math.nan, "not a number"),
    ],
)
def test_verdicts_of_losses(loss, message):
    assert verdict(loss, Guessing(4.0, 5.0)) == message
