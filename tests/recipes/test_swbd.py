"""The Switchboard recipe on small discs of the same layouts, from discs to word error rates, with its
smallest models."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import fisher_discs
import hub5_discs
import pytest
import swbd_discs
from recorded_calls import calls, recorded_recipe
from steps_here import step_of

from pyasr.base.cli.options import parse

RECIPE = Path(__file__).parents[2] / "egs" / "swbd" / "s5"
OF_DISCS = {
    "swbd": ["swbd", "transcripts", "docs"],
    "eval2000": ["audio", "text"],
    "rt03": ["rt03", "glm"],
    "lm_text": ["fisher"],
}


def run(directory: Path, *words: object, status: int = 0) -> str:
    """Output of the recipe with these options, for data and models below `directory`."""
    command = [
        "./run.sh",
        "--toy",
        "true",
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
        timeout=1800,
        env={**os.environ, "PYASR_NO_PIPES": "1"},
    )
    assert done.returncode == status, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def swbd_corpora(tmp_path_factory):
    """{option: location} of all corpora."""
    root = tmp_path_factory.mktemp("corpora")
    swbd = swbd_discs.make_discs(root / "swbd", more_calls=8)
    fisher_discs.make_discs(root / "fisher")
    eval2000, rt03 = hub5_discs.make_eval2000(root / "eval2000"), hub5_discs.make_rt03(root / "rt03")
    return {
        "--swbd": swbd.root,
        "--eval2000-audio": eval2000.audio,
        "--eval2000-text": eval2000.text,
        "--rt03": rt03.audio,
        "--fisher-text": root / "fisher",
    }


def options(places: dict[str, Path]) -> list:
    return [word for option in places.items() for word in option]


@pytest.fixture(scope="module")
def finished(swbd_corpora, tmp_path_factory):
    """Directory of a complete run."""
    directory = tmp_path_factory.mktemp("run")
    run(directory, *options(swbd_corpora))
    return directory


def wer(path: Path) -> float:
    return float(re.search(r"WER ([\d.]+)", path.read_text())[1])


def test_programs_accept_commands_with_all_corpora(tmp_path, monkeypatch):
    words = [
        word
        for option in (
            "swbd",
            "transcripts",
            "docs",
            "eval2000-audio",
            "eval2000-text",
            "rt03",
            "rt03-glm",
            "fisher-text",
        )
        for word in (f"--{option}", f"/corpora/{option}")
    ]
    commands = calls(recorded_recipe(tmp_path / "s5", RECIPE), "run.sh", *words)
    monkeypatch.chdir(RECIPE)
    folders = {"local": "egs/swbd/s5/local", "steps": "steps", "utils": "utils"}
    found = {}
    for program, *arguments in commands[1:]:
        folder, name = program.split("/")
        found[name], _ = parse(step_of(name, folders[folder])[1], arguments)
    discs = {
        name: [getattr(found[f"prepare_{name}.py"], option) for option in options]
        for name, options in OF_DISCS.items()
    }
    assert discs == {
        "swbd": ["/corpora/swbd", "/corpora/transcripts", "/corpora/docs"],
        "rt03": ["/corpora/rt03", Path("/corpora/rt03-glm")],
        "eval2000": ["/corpora/eval2000-audio", "/corpora/eval2000-text"],
        "lm_text": ["/corpora/fisher-text"],
    }
    ran = [program for program, *_ in commands]
    assert {"local/prepare_rt03.py", "local/prepare_lm_text.py", "utils/mix_lms.py"} <= set(ran) and ran[
        0
    ] == "utils/check_install.py"
    assert ["utils/mix_lms.py", "--heldout"] in [command[:2] for command in commands]


def test_recipe_runs_from_discs_to_word_error_rates(finished):
    for system, most in (("tri4", 60), ("dnn", 60)):
        for test in ("train_dev", "eval2000", "rt03"):
            assert wer(finished / "exp" / system / f"decode_{test}" / "best_wer") < most, (system, test)
    assert wer(finished / "exp/dnn/decode_eval2000_4g/best_wer_callhm") < 60
    glm = {
        re.search(r"\|glm:[^|]+\|", (finished / f"exp/dnn/decode_{test}/best_wer").read_text())[0]
        for test in ("train_dev", "eval2000")
    }
    assert len(glm) == 1
    page = (finished / "exp/RESULTS.md").read_text()
    assert {"tri4", "dnn", "callhm", "fsh"} <= set(
        re.findall(r"\w+", page)
    ) and "Comparison with published results" in page


def test_single_stage_runs_again(finished, swbd_corpora):
    shutil.rmtree(finished / "exp/dnn/decode_eval2000")
    output = run(finished, *options(swbd_corpora), "--stage", 11, "--stop-stage", 11)
    assert "exp/dnn is up to date" in output and (finished / "exp/dnn/decode_eval2000/best_wer").exists()
    with_other_discs = {**swbd_corpora, "--eval2000-audio": "", "--eval2000-text": "", "--rt03": ""}
    assert "eval2000" not in run(finished, *options(with_other_discs), "--stage", 8, "--stop-stage", 8)


def test_wrong_discs_are_reported(swbd_corpora, tmp_path):
    """The error messages for all discs are tested in tests/corpora."""
    (tmp_path / "empty").mkdir()
    for option, message in (
        ("--swbd", "prepare_swbd.py: error: Switchboard-1 Release 2 (LDC97S62): no sw0NNNN.sph"),
        ("--rt03", "prepare_rt03.py: error: RT-03 (LDC2007S10): no data/audio/eval03/english/cts"),
    ):
        output = run(
            tmp_path / "run",
            *options({**swbd_corpora, option: tmp_path / "empty"}),
            "--stop-stage",
            1,
            status=1,
        )
        assert message in output and f"below {tmp_path}/empty; give its directory with {option}" in output
