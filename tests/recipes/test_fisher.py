"""The recipe for Fisher English on small discs of the same layout, from discs to word error rates, with its
smallest models."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import fisher_discs
import pytest
from steps_here import step_of

from pyasr.base.cli.option_flags import positionals_of
from pyasr.base.cli.options import parse

RECIPE = Path(__file__).parents[2] / "egs" / "fisher_english" / "s5"


def run(directory: Path, *words: object, status: int = 0) -> str:
    """Output of the recipe with these options, for data and models below `directory`."""
    command = [
        "./run.sh",
        "--sizes",
        "toy",
        "--networks",
        "pnorm",
        "--nj",
        "1",
        "--num-ranks",
        "2",
        "--dir",
        str(directory),
        *map(str, words),
    ]
    done = subprocess.run(
        command,
        cwd=RECIPE,
        capture_output=True,
        text=True,
        timeout=3000,
        env={**os.environ, "PYASR_NO_PIPES": "1"},
    )
    assert done.returncode == status, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "step, confs",
    [
        ("make_mfcc", "mfcc"),
        ("train_lda_mllt", "toy_lda_mllt"),
        ("train_sat", "toy_sat"),
        ("train_dnn", "pnorm"),
        ("train_dnn", "tanh"),
        ("train_dnn", "pnorm toy_network"),
        ("train_dnn", "tanh toy_network"),
    ],
)
def test_steps_accept_their_configurations(step, confs):
    """In the order of run.sh. Rates are those of one rank for sums over minibatches, as in Kaldi."""
    _, cls = step_of(f"{step}.py")
    files = [word for conf in confs.split() for word in ("--config", str(RECIPE / "conf" / f"{conf}.conf"))]
    options, _ = parse(cls, [*files, *("x" for _ in positionals_of(cls))])
    if step == "train_dnn" and "toy" not in confs:
        training = options.training
        training.schedule.check()
        ranks, first_rate = {"pnorm": (8, 0.08), "tanh": (16, 0.04)}[confs]
        assert (training.schedule.lr_convention, training.schedule.lr_scaling) == ("sum", "linear")
        assert ranks * training.schedule.learning_rate == pytest.approx(first_rate)
        assert training.schedule.final_factor == pytest.approx(0.1)


@pytest.fixture(scope="module")
def fisher_corpora(tmp_path_factory) -> fisher_discs.Discs:
    """With speech, compressed by shorten."""
    return fisher_discs.make_discs(tmp_path_factory.mktemp("discs"), with_speech=True)


@pytest.fixture(scope="module")
def finished(fisher_corpora, tmp_path_factory) -> Path:
    """Directory of a run in two parts."""
    directory = tmp_path_factory.mktemp("run")
    run(directory, "--fisher", ":".join(fisher_corpora.places), "--stop-stage", 4)
    run(directory, "--fisher", ":".join(fisher_corpora.places), "--stage", 5)
    return directory


def test_recipe_runs_from_discs_to_word_error_rates(finished):
    results = (finished / "exp/RESULTS.md").read_text()
    for system, most in (("tri5a", 50), ("pnorm", 60)):
        for test in ("dev", "test"):
            wer = re.search(
                r"WER ([\d.]+)", (finished / "exp" / system / f"decode_{test}" / "best_wer").read_text()
            )[1]
            assert float(wer) < most, (system, test, wer)
        assert f"| {system} " in results
    assert "|drop:<unk>,[laughter],[noise],[oov]|" in results and "| tri5a/decode_dev " in results


def test_single_stage_runs_again(finished, fisher_corpora):
    shutil.rmtree(finished / "exp/pnorm/decode_test")
    output = run(finished, "--fisher", ":".join(fisher_corpora.places), "--stage", 9, "--stop-stage", 9)
    assert "exp/pnorm is up to date" in output and (finished / "exp/pnorm/decode_test/best_wer").exists()


def test_wrong_discs_are_reported(fisher_corpora, tmp_path):
    """tests/corpora/test_fisher_discs.py tests the messages of all cases."""
    text_disc = fisher_corpora.places[1]
    output = run(tmp_path / "run", "--fisher", text_disc, status=1)
    sentence = (
        f"Fisher English speech (LDC2004S13, LDC2005S13): no audio/NNN/fe_03_NNNNN.sph below {text_disc}; "
        "give its directory with --fisher"
    )
    assert (
        f"prepare_fisher.py: error: {sentence}" in output.splitlines() and "run.sh: error: stage 1 " in output
    )
