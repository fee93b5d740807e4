"""Jobs are ended even if the scheduler does not answer at first, or keeps a job of a lost host."""

import os
import signal
import subprocess
import sys

import pytest
from test_batch import begin_slurm_of_processes, program
from test_run_pl import wait_until

from pyasr.cluster.schedulers import ending
from pyasr.cluster.schedulers.ending import end_jobs
from pyasr.cluster.schedulers.scheduler import Fate, Scheduler


class Answers(Scheduler):
    """A scheduler with these answers in turn, the last one repeated: to `cancel`, and for the job's fate."""

    def __init__(self, cancelled, fates, held=""):
        self.cancelled, self.answers, self.held, self.calls = list(cancelled), list(fates), held, []

    def cancel(self, number):
        self.calls.append("cancel")
        return self.cancelled.pop(0)

    def fates(self, number, tasks):
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        return answer if answer is None else {0: answer} if isinstance(answer, Fate) else answer

    def release(self, number, tasks):
        self.calls.append(f"release {number} {tasks}")
        return self.held


RUNS, ENDED, LOST = Fate(True), Fate(False), Fate(False, "lost", "n1", host_lost=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(ending, "_MIN_WAIT_S", 0.001)
    monkeypatch.setattr(ending, "_MAX_WAIT_S", 0.002)


@pytest.mark.parametrize(
    "cancelled, fates, calls",
    [
        ([True], [{}], ["cancel"]),
        ([True], [ENDED], ["cancel"]),
        ([True], [RUNS, None, RUNS, ENDED], ["cancel"]),
        (
            [False, False, True],
            [None, RUNS, RUNS, ENDED],
            ["cancel"] * 3,
        ),  # the first two cancellations were lost
        ([False], [{}], ["cancel"]),  # the job has ended
        ([True], [RUNS, LOST], ["cancel", "release 7 [0]"]),
        ([True], [{1: LOST, 2: RUNS}, {1: LOST, 2: RUNS}, {1: LOST}], ["cancel", "release 7 [1]"]),
    ],
)
def test_end_jobs_polls_until_jobs_have_ended(cancelled, fates, calls):
    scheduler = Answers(cancelled, fates)
    assert end_jobs(scheduler, ["7"], 60.0) == [] and scheduler.calls == calls


def test_slots_that_cannot_be_freed_are_reported():
    report = []
    assert end_jobs(
        Answers([True], [LOST], "keeps its slots"), ["7"], 60.0, report.append
    ) == [] and report == ["keeps its slots"]


@pytest.mark.parametrize("answer", [RUNS, None])
def test_jobs_that_do_not_end_are_returned(answer):
    assert end_jobs(Answers([True, True], [answer]), ["7", "8"], 0.1) == ["7", "8"]


def test_jobs_are_ended_when_unresponsive_scheduler_answers_again(tmp_path):
    """The runner names the jobs, and the guard ends them as soon as the scheduler answers."""
    programs = tmp_path / "bin"
    programs.mkdir()
    begin_slurm_of_processes(programs)
    for name in ("scontrol", "scancel"):
        (programs / name).rename(programs / f"{name}-that-answers")
        program(
            programs / name, f'#!/bin/sh\n[ -e {tmp_path}/back ] || exit 1\nexec "$0-that-answers" "$@"\n'
        )
    slurm_pl = (
        "from pyasr.cluster import runner_main; from pyasr.cluster.schedulers import batch, slurm; "
        "batch._ENDING_S = 0.5; runner_main.batch_main('', slurm.Slurm())"
    )
    words = [
        sys.executable,
        "-c",
        slurm_pl,
        "a.log",
        "bash",
        "-c",
        r"echo \$PPID > new; mv new begun; sleep 300",
    ]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as runner:
        wait_until((tmp_path / "begun").exists)
        number = (tmp_path / "begun").read_text().strip()
        runner.terminate()
        report = [
            line.removeprefix("-c: ")
            for line in runner.communicate(timeout=60)[1].splitlines()
            if "does not answer" not in line
        ]
    left = (
        f"cancelled jobs have not ended yet, according to Slurm: {number}; wait for their end before you "
        "run the same command again"
    )
    assert runner.returncode == 128 + signal.SIGTERM and report == [left, "stopped by signal 15"]
    assert os.path.exists(f"/proc/{number}")
    (tmp_path / "back").touch()
    wait_until(lambda: not os.path.exists(f"/proc/{number}"))
