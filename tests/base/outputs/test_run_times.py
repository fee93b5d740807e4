"""Seconds of an output that several runs computed, by a clock that the test sets."""

import os
import subprocess
import sys
import time

import pytest

from pyasr.base.outputs.fingerprint import read_done
from pyasr.base.outputs.output import stage_output
from pyasr.base.outputs.run_times import RUNS


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def run(place, clock, seconds: float, broken_off: bool = False, **keywords) -> float | None:
    """Seconds in the done-file; None if the run is interrupted."""
    try:
        with stage_output(place / "out", {}, [], **{"resume": True, **keywords}):
            clock[0] += seconds
            if broken_off:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        return None
    return read_done(place / "out")["seconds"]


def test_interrupted_runs_count_and_pauses_do_not(tmp_path, clock):
    for _ in range(2):
        run(tmp_path, clock, 30, broken_off=True)
        clock[0] += 10000
    assert run(tmp_path, clock, 5) == 65
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == [".done.json"]


def test_discarded_runs_do_not_count(tmp_path, clock):
    run(tmp_path, clock, 30, broken_off=True)
    assert run(tmp_path, clock, 5, resume=False) == 5


def test_killed_run_counts_until_last_change(tmp_path, clock):
    run(tmp_path, clock, 30, broken_off=True)
    clock[0] = 2000.0
    code = f"""
import os, time
from pathlib import Path
from pyasr.base.outputs.output import stage_output
time.time = lambda: {clock[0]}
with stage_output(Path({str(tmp_path / "out")!r}), {{}}, [], resume=True) as out:
    (out / "checkpoint").touch()
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    for path in (tmp_path / "out.tmp").rglob("*"):
        os.utime(path, (2040, 2040) if path.name == "checkpoint" else (2000, 2000))
    clock[0] = 10000.0
    run(tmp_path, clock, 7, broken_off=True)
    clock[0] = 20000.0
    assert run(tmp_path, clock, 5) == 30 + 40 + 7 + 5


@pytest.mark.parametrize(
    "content", [b"", b"1000.000", b"1000.000 9", b"\0\0\0", b"\xff\n1000.000 1030.000\n"]
)
def test_damaged_time_record_is_ignored(content, tmp_path, clock):
    run(tmp_path, clock, 30, broken_off=True)
    (tmp_path / "out.tmp" / RUNS).write_bytes(content)
    for path in (tmp_path / "out.tmp").rglob("*"):
        os.utime(path, (1030, 1030))
    assert run(tmp_path, clock, 5) == (35 if b"1000.000" in content else 5)
