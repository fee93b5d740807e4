"""Progress of groups of jobs: lines and their times with a fake clock, and the output of real runners."""

import os
import pty
import re
import subprocess
import sys

import pytest

from pyasr.cluster.runner.command_line import parse_request
from pyasr.cluster.runner.group_progress import GroupProgress, lasting

AT = r"\d\d:\d\d:\d\d"
SOON = """
import functools, sys
import pyasr.cluster.runner_main as front_end
front_end.showing_progress = functools.partial(front_end.showing_progress, first_s=0.05)
sys.argv[0] = "run.pl"
front_end.local_main("")
"""
SCHEDULER = """
import functools, pathlib, sys
import pyasr.cluster.runner_main as front_end
from pyasr.cluster.schedulers.scheduler import Fate, Scheduler
class AtOnce(Scheduler):
    def submission(self, request, jobs, script, name):
        start = f"TASK=$t bash {script} >/dev/null 2>&1 </dev/null &"
        return ["bash", "-c", f"for t in {' '.join(map(str, jobs))}; do {start} done; echo 1"]
    number = lambda self, said: said.strip()
    fates = lambda self, number, tasks: {task: Fate(True) for task in tasks}
    cancel = lambda self, number: None
    task_variable, usual = "TASK", pathlib.Path("slurm.conf")
front_end.showing_progress = functools.partial(front_end.showing_progress, first_s=0.05)
sys.argv[0] = "slurm.pl"
front_end.batch_main("", AtOnce())
"""


def lines_of(request, seconds, num_ended, on_terminal=False):
    """[(text written, seconds since the previous text)] of a group that runs for `seconds`."""
    written, times = [], iter([100.0, 100.0 + seconds])
    progress = GroupProgress(request, lambda: num_ended, written.append, on_terminal, lambda: next(times))
    wait_s = progress.tell()
    progress.close()
    return written, wait_s


def test_progress_lines(monkeypatch):
    request = parse_request(["JOB=1:50", "exp/make_mfcc/log/make_mfcc_train.JOB.log", "true"])
    monkeypatch.setenv("PYASR_STEP", "make_mfcc.py")
    (line,), wait_s = lines_of(request, 130, 37)
    assert (
        re.fullmatch(rf"{AT} make_mfcc.py: make_mfcc_train: 37/50 jobs, 2 min, about 45 s left\n", line)
        and wait_s == 65
    )
    monkeypatch.delenv("PYASR_STEP")
    monkeypatch.setattr("sys.argv", ["utils/queue.pl"])
    assert re.fullmatch(
        rf"{AT} queue.pl: 0/2 jobs, 20 s\n",
        lines_of(parse_request(["J=1:2", "log/J.log", "true"]), 20, 0)[0][0],
    )


def test_terminal_line_is_overwritten_and_cleared(monkeypatch):
    monkeypatch.setenv("PYASR_STEP", "x.py")
    written, wait_s = lines_of(parse_request(["JOB=1:2", "a.JOB.log", "true"]), 20, 1, on_terminal=True)
    assert (
        re.fullmatch(rf"\x1b\[K{AT} x.py: a: 1/2 jobs, 20 s, about 20 s left\r", written[0])
        and written[1:] == ["\x1b[K"]
        and wait_s == 1
    )


def test_few_lines_per_day():
    passed_s, num_lines = 20.0, 0
    request = parse_request(["JOB=1:2", "a.JOB.log", "true"])
    while passed_s < 24 * 3600:
        passed_s, num_lines = passed_s + lines_of(request, passed_s, 0)[1], num_lines + 1
    assert num_lines == 21


@pytest.mark.parametrize(
    "seconds, words",
    [(40.9, "40 s"), (60, "1 min"), (3599, "59 min"), (3900, "1 h 05 min"), (90000, "25 h 00 min")],
)
def test_durations_are_formatted(seconds, words):
    assert lasting(seconds) == words


@pytest.mark.parametrize("program, name", [(SOON, "run.pl"), (SCHEDULER, "slurm.pl")])
def test_runners_report_number_of_ended_jobs(program, name, tmp_path, monkeypatch):
    """The second job waits until the end of the first is reported. Logs do not contain the reports."""
    monkeypatch.delenv("PYASR_STEP", raising=False)
    words = [
        "--max-jobs-run",
        "2",
        "JOB=1:2",
        "log/a.JOB.log",
        "bash",
        "-c",
        "until [ JOB = 1 -o -e seen ]; do sleep 0.05; done",
    ]
    runner = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = next(
        line
        for line in runner.stderr
        if re.fullmatch(rf"{AT} {name}: a: 1/2 jobs, (\d+ s), about \1 left\n", line)
    )
    (tmp_path / "seen").touch()
    said, _ = runner.communicate(timeout=60)
    assert runner.returncode == 0 and said == ""
    assert not [log for log in (tmp_path / "log").glob("*.log") if seen in log.read_text()]


def test_terminal_line_is_empty_at_end(tmp_path):
    ours, theirs = pty.openpty()
    words = [
        "--max-jobs-run",
        "2",
        "JOB=1:2",
        "a.JOB.log",
        "bash",
        "-c",
        "until [ JOB = 1 -o -e seen ]; do sleep 0.05; done",
    ]
    runner = subprocess.Popen([sys.executable, "-c", SOON, *words], cwd=tmp_path, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"a: " not in said:
        said += os.read(ours, 4096)
    (tmp_path / "seen").touch()
    assert runner.wait(60) == 0
    said += os.read(ours, 4096)
    os.close(ours)
    assert re.search(rb"jobs, \d+ s(, about \d+ s left)?\r\x1b\[K$", said)


def test_single_and_short_jobs_print_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SOON, "x.log", "sleep", "0.3"], cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = subprocess.run(
        ["run.pl", "JOB=1:3", "x.JOB.log", "sleep", "0.1"], cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
