"""Progress reports of ranks: real ranks that wait until the report was printed, with and without a
terminal."""

import os
import pty
import re
import subprocess
import sys

import pytest

from pyasr.base.outputs.progress_note import VARIABLE, Course, Note, read_note
from pyasr.cluster.ranks.rank_progress import rank_progress_text

RANKS = """
import time
from pathlib import Path
from pyasr.base import log
from pyasr.base.outputs.progress_note import Course

def wait(name):
    while not Path(name).exists(): time.sleep(0.02)

def rank(spec, comm):
    if comm.rank == 0:
        log.info("reading the features")
        wait("seen")
        Course("iteration", 40).tell(10, -61.25, 1000)
        wait("seen_again")
    comm.barrier()
"""
STEP = """
import functools, sys
from pathlib import Path
import pyasr.cluster.ranks.jobs as jobs
jobs.showing_rank_progress = functools.partial(jobs.showing_rank_progress, first_s=0.05)
sys.argv[0] = "train_x.py"
jobs.run_ranks(jobs.JobOptions(), Path("log/train.log"), "ranks_under_test:rank", jobs.JobOptions(), 2)
"""
AT = r"\d\d:\d\d:\d\d train_x.py: "
NOTE = r"iteration 10 of 40 \(25%\), objective -61\.2500, \d+ frames/s, about \d+ s left, \d+ s so far"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Function that starts a step with the given standard error."""
    (tmp_path / "ranks_under_test.py").write_text(RANKS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    return lambda stderr: subprocess.Popen(
        [sys.executable, "-c", STEP], cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def test_reports_without_terminal_are_lines(begin, tmp_path):
    """First the last line of the log, then the reports of the ranks. No note file remains."""
    step = begin(subprocess.PIPE)
    for report, seen in (
        (rf"{AT}reading the features, \d+ s so far\n", "seen"),
        (rf"{AT}{NOTE}\n", "seen_again"),
    ):
        lines = []
        while not (lines and re.fullmatch(report, lines[-1])):
            lines.append(step.stderr.readline())
            assert lines[-1], lines
        (tmp_path / seen).touch()
    said, _ = step.communicate(timeout=60)
    assert step.returncode == 0 and said == ""
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        "train.log",
        "train.spec.json",
        "train.status",
    ]


def test_terminal_line_is_updated_in_place(begin, tmp_path):
    ours, theirs = pty.openpty()
    step = begin(theirs)
    os.close(theirs)
    said = ""
    for report, seen in (("reading the", "seen"), ("iteration 10 of 40", "seen_again")):
        while report not in said:
            said += os.read(ours, 4096).decode()
        (tmp_path / seen).touch()
    assert step.wait(60) == 0
    said += os.read(ours, 4096).decode()
    os.close(ours)
    assert "\n" not in said and said.endswith("\r\x1b[K")


def test_text_before_first_report(tmp_path):
    log = tmp_path / "train.log"
    assert rank_progress_text(tmp_path / "none", log) == f"the ranks have not reported yet (log: {log})"
    log.write_text(
        "# mpiexec ...\n#\n14:02:10 train_rank[0]: iteration 3: \x1b[31m100 Gaussians\nwarning: of a "
        "library\n"
    )
    assert rank_progress_text(tmp_path / "none", log) == r"iteration 3: \x1b[31m100 Gaussians"
    (tmp_path / "note").write_text('{"what"')
    assert rank_progress_text(tmp_path / "note", log).startswith("iteration 3: ")


def test_remaining_time_counts_passes_of_this_run_only(tmp_path, monkeypatch):
    """The 10th to 12th of 40 passes took 3 s. The note is skipped if it has no reader or cannot be
    written."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    course = Course("iteration", 40)
    for place in (None, "/nowhere/note", str(tmp_path / "note")):
        monkeypatch.delenv(VARIABLE, raising=False) if place is None else monkeypatch.setenv(VARIABLE, place)
        now[0] += 1.0
        course.tell(12, -60.0, 500)
    assert read_note(tmp_path / "note") == Note("iteration 12 of 40", 0.3, -60.0, 500.0, 28.0)
