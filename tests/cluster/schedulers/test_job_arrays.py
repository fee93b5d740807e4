"""Arrays of many jobs under real schedulers: the runner waits for all jobs without a query or file access per
job."""

import os
import sys
from pathlib import Path

import pytest

from pyasr.cluster.runner.command_line import parse_request
from pyasr.cluster.schedulers.batch import BatchRunner
from pyasr.cluster.schedulers.slurm import Slurm

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from array_jobs import SCHEDULERS, commands, run_array  # noqa: E402

NUM_JOBS = 16


@pytest.mark.parametrize("runner, fixture", [("slurm.pl", "slurm"), ("queue.pl", "grid")])
def test_array_of_many_jobs_needs_few_queries(runner, fixture, request, tmp_path):
    cluster, question = request.getfixturevalue(fixture), SCHEDULERS[runner][2]
    well, failed = (
        run_array(cluster, runner, question, tmp_path / what, command, NUM_JOBS)
        for what, command in commands(NUM_JOBS).items()
    )
    assert well.status == 0 and "error" not in well.said and well.num_questions <= 2 + well.took_s / 2
    assert len(list((tmp_path / "well/log").glob("a.*.status"))) == NUM_JOBS
    assert (
        failed.status == 1
        and f"  job    {NUM_JOBS // 2} on " in failed.said
        and "    | the cause\n" in failed.said
    )


def test_poll_of_500_jobs_is_cheap(tmp_path, monkeypatch):
    """One directory listing, no opened files, and a few function calls per job."""
    monkeypatch.chdir(tmp_path)
    Path("log").mkdir()
    runner = BatchRunner(parse_request(["JOB=1:500", "log/a.JOB.log", "true"], Slurm.own), Slurm())
    runner.left = dict.fromkeys(runner.request.jobs, "1")
    for job in runner.request.jobs:
        Path(f"log/a.{job}.log").touch()
    calls = []
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: calls.append("listdir") or listed(path))
    sys.setprofile(
        lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None
    )
    try:
        assert not runner._take_statuses()
    finally:
        sys.setprofile(None)
    assert calls.count("listdir") == 1 and len(calls) < 1000
