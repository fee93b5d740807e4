"""System calls that fail in a few steps of the toy recipe. benchmarks/failures/system_errors.py covers one
step of each kind."""

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyasr.cluster.ranks import jobs

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/failures"))
import error_ground  # noqa: E402

STEPS = "prepare_lang,make_mfcc,compute_cmvn,copy_data_dir,subset_data_dir"
MIN_TRIALS = 30


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace (apt-get install strace)")
def test_failing_system_call_gives_one_sentence_and_same_command_recovers(root, tmp_path):
    table, page = tmp_path / "table.json", tmp_path / "page.md"
    page.write_text(
        "<!-- figures, written by benchmarks/failures/system_errors.py -->\n"
        "<!-- end of figures of system errors -->\n"
    )
    command = [
        sys.executable,
        root / "benchmarks/failures/system_errors.py",
        "--steps",
        STEPS,
        "--most",
        "1",
        tmp_path,
        table,
        page,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if "strace is not permitted" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    trials = json.loads(table.read_text())
    assert len(trials) >= MIN_TRIALS and [trial for trial in trials if trial["problems"]] == []
    assert any(trial["status"] for trial in trials) and {trial["step"] for trial in trials} == set(
        STEPS.split(",")
    )


def test_forked_jobs_take_arguments_of_jobs():
    assert list(inspect.signature(error_ground.run_in_forks).parameters) == list(
        inspect.signature(jobs._run).parameters
    )
