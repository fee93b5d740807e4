"""Faults injected into the first stages of the toy recipe, one of each kind. benchmarks/failures/faults.py
covers the whole recipe."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyasr.base.errors import UserError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/failures"))
import fault_ground  # noqa: E402
import fault_page  # noqa: E402
import faults  # noqa: E402

SEEDS = [1, 2, 3, 4, 5]  # one of each kind
NUM_STAGES = 2


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """The recipe's first stages, run once without faults."""
    run_dir = tmp_path_factory.mktemp("faults")
    try:
        ground = fault_ground.Ground(run_dir, 40).__enter__()
    except UserError as error:
        pytest.skip(f"no place to inject faults: {error}")
    yield faults.Trials(ground, run_dir / "snapshots", num_stages=NUM_STAGES)
    ground.__exit__()


@pytest.mark.parametrize("seed", SEEDS)
def test_same_command_recovers_from_fault(seed, trials):
    trial = trials.run(seed)
    assert trial.problems == [] and trial.stage <= NUM_STAGES


def test_unreached_fault_time_is_drawn_again(trials, monkeypatch):
    moments = iter([(1, 1e9), (1, 0.1)])
    monkeypatch.setattr(faults, "moment", lambda *_: next(moments))
    trial = trials.run(5)
    assert (trial.stage, trial.after_s, trial.problems) == (1, 0.1, [])


def test_remaining_damage_is_detected(trials):
    """A changed file, a partly written one, and a remaining process."""
    recipe, ground = trials.ground.recipe, trials.ground
    ground.lay_out(trials.snapshots / str(NUM_STAGES))
    half_written = ["data/.lang.old", "data/lang.tmp"]
    for name in half_written:
        (recipe / name).mkdir()
    (recipe / "data/train/text").write_text("other")
    wanted = fault_ground.contents(trials.snapshots / str(NUM_STAGES))
    assert fault_ground.contents(recipe).keys() == wanted.keys() and fault_ground.contents(recipe) != wanted
    assert fault_ground.half_written(recipe) == half_written
    process = subprocess.Popen(["sleep", "60"], env={"PYASR_FAULT_GROUND": str(ground.place)})
    assert fault_ground.wait_until(lambda: ground.processes() == {process.pid: "sleep 60"}, 10)
    fault_ground.end(ground.processes())
    assert process.wait() == -9


@pytest.mark.parametrize(
    "said, status, problems",
    [
        ("run.sh: error: stage 1 (A): 'x' failed with status 1 (run.sh line 3)", 1, []),
        ("run.sh: stopped by signal 15; run the same command again to resume", 143, []),
        ("", 0, []),
        ("", -9, []),
        ("", 1, ["0 reports of failure with exit status 1"]),
        ("run.sh: error: a\nrun.sh: error: b", 1, ["2 reports of failure with exit status 1"]),
        ("Traceback (most recent call last):\nrun.sh: error: a", 1, ["a traceback was shown"]),
    ],
)
def test_failure_reports_are_checked(said, status, problems):
    assert fault_page.problems_of_report(said, status) == problems


def test_table_and_page_are_written(tmp_path):
    trial = fault_page.Trial(
        1, "disk full", 4, 1.0, "--stage 4", "0 KiB left", 1, 2.0, "run.sh: error: x", [], 9.0, "abc"
    )
    whole = {"words": f"--stage 4 --stop-stage {fault_ground.NUM_STAGES}"}
    rows = {
        1: trial,
        2: replace(trial, seed=2, status=0, **whole),
        3: replace(trial, seed=3, kind="damaged file", problems=["1 files differ: x"], **whole),
    }
    fault_page.write_table(tmp_path / "table.json", rows)
    assert (
        fault_page.read_table(tmp_path / "table.json") == rows
        and len(json.loads((tmp_path / "table.json").read_text())) == 3
    )
    page = tmp_path / "page.md"
    page.write_text(f"before\n{fault_page._BEGIN}\nold\n{fault_page._END}\nafter\n")
    for _ in range(2):
        fault_page.write_page(page, rows)
    lines = page.read_text().splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    assert (
        "| disk full | 2 | 1 | 1 | 2 |" in lines
        and "| damaged file | 1 | 1 | 0 | 0 |" in lines
        and "| all | 3 | 2 | 1 | 2 |" in lines
    )
    assert (
        "1 of these trials ran to the end of the recipe, with the word error rates of an undisturbed run."
        in lines
    )
    page.write_text("no place")
    with pytest.raises(UserError, match="the marks of the generated part are missing"):
        fault_page.write_page(page, rows)
