"""Plans of all recipes: every program has a rule and a rate, nothing is run, and insufficient resources are
reported."""

import os
import re
import subprocess
from dataclasses import replace

import pytest
from recorded_calls import ROOT, calls, options_of_all, recorded_recipe, scripts_of

from pyasr.report.plan import room
from pyasr.report.plan.derived_dirs import Speech
from pyasr.report.plan.disk import disk_below
from pyasr.report.plan.estimate import Need, make_plan
from pyasr.report.plan.planned_calls import parse_call
from pyasr.report.plan.planned_data import Disk, PlannedCorpus
from pyasr.report.plan.rates import read_rates
from pyasr.report.plan.works import BEFORE, LITTLE, WORKS

RATES = read_rates(ROOT / "benchmarks/rates.json")
SCRIPTS = [
    (recipe, script) for recipe in sorted((ROOT / "egs").glob("*/s5")) for script in scripts_of(recipe)
]
TEMPLATE = ROOT / "pyasr/intake/own/template/run.sh"


@pytest.mark.parametrize(
    "recipe, script", SCRIPTS, ids=[f"{recipe.parent.name} {script}" for recipe, script in SCRIPTS]
)
def test_all_programs_are_in_plan_of(recipe, script, tmp_path):
    """A new step needs a rule in `pyasr.report.plan.works`, and a rate from benchmarks/small_runs.py."""
    for number, options in enumerate(options_of_all(recipe, script)):
        commands = calls(recorded_recipe(tmp_path / f"s5_{number}", recipe), script, *options)
        recorded = [parse_call(program, words, "1", recipe) for program, *words in commands]
        disk = Disk(lambda path: Speech(100.0, 80_000), network=disk_below(recipe).network)
        plan = make_plan(recorded, PlannedCorpus(disk), RATES)
        assert plan.unknown == [] and plan.total.core_s > 3600 and plan.total.memory_mb > 300
        trained = [call for call in recorded if call.name == "train_dnn"]
        assert not trained or plan.total.gpu_s or plan.total.without_gpu


def test_all_programs_of_own_recipe_have_a_rule():
    names = set(re.findall(r"\b(?:steps|utils)/(\w+)\.py", TEMPLATE.read_text("utf-8"))) - {"new_recipe"}
    assert "prepare_own_data" in names and names <= WORKS.keys() | LITTLE | BEFORE


def test_all_rules_have_a_rate():
    measured = {name.split()[0] for name in RATES.of} | {"prepare_joint_dict", "prepare_fisher_dict"}
    assert WORKS.keys() <= measured


def test_rates_name_machine_and_estimates_name_source():
    assert RATES.machine and re.fullmatch(r"\d{4}-\d\d-\d\d", RATES.measured)
    assert "fitted to measured steps" in RATES.gpu["source"] and RATES.gpu["gflop_per_s"] > 0


def plan_of(script: str, folder, *words) -> subprocess.CompletedProcess:
    return subprocess.run(
        [f"./{script}", "--plan", "true", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_local_scripts_run_nothing_for_a_plan(tmp_path):
    """They change to the recipe's directory, from which they call programs."""
    done = plan_of("su_chen.sh", ROOT / "egs/swbd/s5/local/experiments", "--dir", tmp_path)
    assert (
        done.returncode == 1
        and "data/train_nodup_fmllr does not exist" in done.stderr
        and not list(tmp_path.iterdir())
    )


def write_data(path) -> None:
    path.mkdir(parents=True)
    (path / "utt2spk").write_text("u s\n")
    (path / "utt2dur").write_text("u 36000000\n")


def test_run_exceeding_resources_is_an_error(tmp_path):
    """10,000 hours need more disk and memory than any machine of the tests has."""
    for part in ("train", "dev", "test"):
        write_data(tmp_path / "data" / part)
    done = plan_of("run.sh", ROOT / "egs/toy/s5", "--dir", tmp_path)
    output = re.findall(r"(?m)^DOES NOT FIT: (\w+)", done.stdout)
    assert (
        done.returncode == 1
        and output == ["disk", "memory"]
        and "the run does not fit this machine: disk: " in done.stderr
    )
    assert "| all " in done.stdout


def need(
    memory_mb: float, workers: int, cmd: str = "run.pl", disk_bytes: float = 0.0, output: str = "exp/x"
) -> Need:
    return Need(
        parse_call("steps/train_sat.py", ["--cmd", cmd, "data/train", output]),
        output,
        disk_bytes,
        memory_mb,
        workers,
    )


def test_memory_of_one_job_and_concurrent_jobs():
    gigabyte = 10**9
    assert list(room.memory_shortages([need(900, 4)], 4 * gigabyte)) == []
    (report,) = room.memory_shortages([need(900, 5), need(100, 2)], 4 * gigabyte)
    assert report == (
        "memory: 5 simultaneous jobs of steps/train_sat.py for exp/x need 4.5 GB, this machine has 4 GB; "
        "run at most 4 at a time, or use a cluster (cmd.sh)"
    )
    (report,) = room.memory_shortages([need(5000, 2)], 4 * gigabyte)
    assert "a job of steps/train_sat.py for exp/x needs 5 GB, this machine has 4 GB; use more jobs" in report
    assert list(room.memory_shortages([need(5000, 2, cmd="slurm.pl --mem 8G")], 4 * gigabyte)) == []
    assert list(room.memory_shortages([need(5000, 2)], None)) == []


def test_disk_of_incomplete_outputs(tmp_path, monkeypatch):
    usage = os.statvfs(tmp_path)
    free = usage.f_bavail * usage.f_frsize
    monkeypatch.setattr(room.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free}))
    two = [need(0, 1, disk_bytes=0.6 * free, output=str(tmp_path / name / "deep")) for name in "ab"]
    (report,) = room.disk_shortages(two)
    assert (
        report.startswith(f"disk: outputs below {tmp_path} need ")
        and "free some space, or run the recipe on another filesystem" in report
    )
    (tmp_path / "a/deep").mkdir(parents=True)
    (tmp_path / "a/deep/.done.json").write_text("{}")
    assert list(room.disk_shortages(two)) == []
    assert list(room.disk_shortages([replace(two[1], disk_bytes=2 * free)]))
