"""Report of a failing recipe with real causes: job, host, a command that repeats the job, the reason once,
log, step, stage."""

import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

RECIPE = """#!/usr/bin/env bash
# A recipe with one step.

cd "$(dirname "$0")"
. utils/recipe.sh
what=good        # function
spawned=false    # in the background
parse_recipe_options "$@"
PATH=$recipe_root/.venv/bin:$PATH
if stage 1 "Fine things"; then true; fi
if stage 2 "Train"; then
  if [ "$spawned" = true ]; then
    spawn first python step.py "$what"
    join
  else
    python step.py "$what"
  fi
fi
"""
STEP = """
import sys
from pathlib import Path
from pyasr.cluster.ranks.jobs import JobOptions, Recovery, run_jobs, run_ranks
from pyasr.base.cli.job_options import RankJobOptions
from pyasr.base.cli.step import run_step
from dataclasses import dataclass
from pyasr.base.cli.options import argument

@dataclass(frozen=True)
class Step:
    what: str = argument("function")

def main(options):
    if options.what.startswith("rank"):
        recovery = Recovery(RankJobOptions(max_restarts=1))
        log = Path("exp/x/log/train.log")
        run_ranks(JobOptions(), log, f"causes:{options.what}", JobOptions(), 2, recovery)
    else:
        run_jobs(JobOptions(nj=3), Path("exp/x/log/work.JOB.log"), f"causes:{options.what}", JobOptions())

run_step(Step, main, "")
"""
CAUSES = """
import os, resource, signal, subprocess, sys
from pathlib import Path

def second_job(work):
    return lambda spec, job: work() if job == 2 else None

def allocate():
    import numpy
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    numpy.ones(1 << 29)

memory = second_job(allocate)
disk = second_job(lambda: open("/dev/full", "w").write("x" * 100000))
missing = second_job(lambda: open("data/train/text"))
licence = second_job(lambda: subprocess.run("echo license file not found >&2; false", shell=True, check=True))
killed = second_job(lambda: os.kill(os.getpid(), signal.SIGKILL))

def rank_aborts(spec, comm):
    if comm.rank == 0:
        from mpi4py import MPI
        print("beyond repair", flush=True)
        MPI.COMM_WORLD.Abort(3)
    comm.barrier()

def rank_lost_once(spec, comm):
    if comm.rank == 1 and not Path("lost").exists():
        Path("lost").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()
"""


@pytest.fixture
def recipe(tmp_path, root) -> Path:
    (tmp_path / "utils").symlink_to(root / "utils")
    for name, text in (("run.sh", RECIPE), ("step.py", STEP), ("causes.py", CAUSES)):
        (tmp_path / name).write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    return tmp_path


def run(recipe: Path, monkeypatch, *words: str):
    monkeypatch.setenv("PYTHONPATH", f"{recipe}:{recipe.joinpath('utils').resolve().parent}")
    return subprocess.run(["./run.sh", *words], cwd=recipe, capture_output=True, text=True, timeout=300)


CASES = [
    ("memory", "memory ran out (Unable to allocate", ""),
    ("disk", "the disk is full", ""),
    ("missing", "data/train/text: no such file or directory", ""),
    ("licence", "subprocess.CalledProcessError: ", "no valid licence"),
    ("killed", "killed by signal 9", "it was killed from outside, usually because memory ran out"),
    ("rank_aborts", "its job failed", "one rank has ended all of them by MPI_Abort"),
]


@pytest.mark.parametrize("what, reason, hint", CASES)
def test_one_report_has_all_information(what, reason, hint, recipe, monkeypatch):
    done = run(recipe, monkeypatch, "--what", what)
    assert done.returncode == 1
    report = check_report(done.stderr, reason, hint, job=1 if what.startswith("rank") else 2)
    assert "beyond repair" in report or not what.startswith("rank")
    assert "license file not found" in report or what != "licence"
    again = shlex.split(re.search(r"(?m)^  again  (.*)", report)[1])
    assert subprocess.run(again, cwd=recipe, capture_output=True, timeout=100).returncode == 1
    assert (
        "\nrun.sh: error: stage 2 (Train): 'python step.py \"$what\"' failed with status 1 (run.sh line 16)\n"
        in done.stderr
    )
    assert done.stderr.count("error: stage") == 1 and done.stderr.rstrip().endswith(
        "completed steps are not repeated"
    )


def test_spawned_step_has_same_report(recipe, monkeypatch):
    done = run(recipe, monkeypatch, "--what", "missing", "--spawned", "true")
    assert done.returncode == 1
    check_report(
        done.stderr.replace("\n    | ", "\n"), "data/train/text: no such file or directory", "", job=2
    )
    assert "run.sh: error: stage 2 (Train): 'join' failed" in done.stderr


def check_report(said: str, reason: str, hint: str, job: int) -> str:
    """Exactly one report, without the reason, which the step prints."""
    assert said.count("failed, log is in") == 1 and said.count(reason) == 1, said
    report = said[said.index("run.pl: ") : said.index("step.py: error:")]
    assert re.match(
        rf"run.pl: 1 / \d failed, log is in exp/x/log/\S+; job {job} on {re.escape(socket.gethostname())} "
        r"\(after [\d.]+ s\)\n",
        report,
    )
    assert (
        re.search(rf"(?m)^  hint   .*{hint}", report)
        if hint
        else ("  hint" not in report and report.count("\n") == 2)
    ), report
    step = re.search(r"(?m)^step.py: error: (.*)", said)[1]
    which = f"job {job} of 3 failed" if job == 2 else "its job failed"
    assert reason in step and re.fullmatch(rf"{which}: .* \(log: exp/x/log/\S+\)", step), step
    return report


def test_replaced_lost_rank_is_not_a_failure(recipe, monkeypatch):
    done = run(recipe, monkeypatch, "--what", "rank_lost_once")
    assert done.returncode == 0 and "1 rank continues" in done.stdout + done.stderr
    assert "failed, log is in" not in done.stderr and not list(recipe.glob("exp/x/log/*.report"))
