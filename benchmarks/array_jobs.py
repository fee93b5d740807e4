#!/usr/bin/env python3
"""Overhead of slurm.pl and queue.pl for an array of jobs, on the real Slurm and Grid Engine that the tests
start.

Submits --num-jobs jobs twice: all succeed, then one of them fails. Prints for each scheduler the CPU seconds
of the runner and its children, the duration of the jobs, the number of queries to the scheduler, and the
report on the failure. Needs root and Debian's packages (tests/run.sh).

Example:
    benchmarks/array_jobs.py --num-jobs 500
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "cluster"))
from grid_engine_cluster import GridEngineCluster  # noqa: E402
from grid_engine_cluster import why_not as why_no_grid_engine
from slurm_cluster import SlurmCluster  # noqa: E402
from slurm_cluster import why_not as why_no_slurm

SCHEDULERS = {
    "slurm.pl": (why_no_slurm, SlurmCluster, "scontrol"),
    "queue.pl": (why_no_grid_engine, GridEngineCluster, "qstat"),
}


@dataclass(frozen=True)
class Benchmark:
    num_jobs: int = option(500, "number of jobs in the array", minimum=2)
    runners: str = option("slurm.pl queue.pl", "runners to measure, separated by spaces")


@dataclass(frozen=True)
class Run:
    """Result of a runner: `status` and `said` are its exit status and standard error; `cpu_s` includes its
    children."""

    status: int
    said: str
    cpu_s: float
    took_s: float
    num_questions: int


def run_array(cluster, runner: str, question: str, directory: Path, command: list[str], num_jobs: int) -> Run:
    """Run `command` as an array of jobs in `directory`, and count the calls of the scheduler's program
    `question`."""
    directory.mkdir(parents=True)
    counted, calls = directory / "bin", directory / "calls"
    counted.mkdir()
    calls.touch()
    place = cluster.call("which", question).strip()
    (counted / question).write_text(f'#!/bin/sh\necho >>"{calls}"\nexec {place} "$@"\n')
    (counted / question).chmod(0o755)
    environment = {**cluster.environment, "PATH": f"{counted}:{cluster.environment['PATH']}"}
    words = [sys.executable, str(ROOT / "utils" / runner), f"JOB=1:{num_jobs}", "log/a.JOB.log", *command]
    begin = time.monotonic()
    with (directory / "said").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(words, cwd=directory, env=environment, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return Run(
            process.returncode,
            said.read(),
            usage.ru_utime + usage.ru_stime,
            time.monotonic() - begin,
            len(calls.read_text()),
        )


def commands(num_jobs: int) -> dict[str, list[str]]:
    """Commands of the jobs: in the first array all succeed, in the second one fails."""
    which = num_jobs // 2
    return {
        "well": ["true"],
        f"job {which} fails": ["bash", "-c", f"[ JOB != {which} ] || {{ echo the cause; exit 3; }}"],
    }


def tell(what: str, run: Run) -> None:
    print(
        f"{what}: exit status {run.status}, {run.took_s:.0f} s, {run.cpu_s:.2f} CPU s of the runner, "
        f"{run.num_questions} queries"
    )


def main(options: Benchmark) -> None:
    for runner in options.runners.split():
        if runner not in SCHEDULERS:
            raise UserError(f"--runners: '{runner}' is not one of {' '.join(SCHEDULERS)}")
        why_not, start, question = SCHEDULERS[runner]
        if lack := why_not():
            raise UserError(lack)
        with tempfile.TemporaryDirectory() as scratch:
            cluster = start(Path(scratch) / "cluster")
            try:
                for what, command in commands(options.num_jobs).items():
                    run = run_array(
                        cluster, runner, question, Path(scratch) / what, command, options.num_jobs
                    )
                    tell(f"{runner}, {options.num_jobs} jobs, {what}", run)
                    print(run.said.rstrip(), flush=True)
            finally:
                cluster.stop()


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
