"""The frame of all programs: a reader of the output who leaves, as `head` does."""

import os
import subprocess
import sys

import pytest

STEP = """
from dataclasses import dataclass
from pathlib import Path
from pyasr.base import log
from pyasr.base.errors import UpToDate, UserError
from pyasr.base.options import argument
from pyasr.base.step import run_step

@dataclass(frozen=True)
class Step:
    what: str = argument("what to do")

def main(options):
    if options.what == "current":
        raise UpToDate("it is")
    if options.what == "wrong":
        print("one line")
        raise UserError("something is wrong")
    if options.what == "print":
        print("one line", flush=True)
    if options.what == "log":
        log.info("one line")
    if options.what == "buffered":
        print("one line")
        return
    Path("made").touch()

run_step(Step, main, "long\\n" * 5000)
"""


def run(what, cwd, stdout):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run([sys.executable, "-c", STEP, what], cwd=cwd, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("what, says", [("--help", 141), ("current", 141), ("print", 141), ("log", 141), ("buffered", 141), ("quiet", 0)])
def test_a_step_without_a_reader_ends_with_the_status_of_a_closed_pipe(what, says, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = run(what, tmp_path, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (says, "")
    assert (tmp_path / "made").exists() == (what == "quiet")


def test_what_is_wrong_is_told_without_a_reader_too(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = run("wrong", tmp_path, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "-c: error: something is wrong\n")


@pytest.mark.parametrize("what", ["--help", "current", "print", "log", "buffered", "quiet"])
def test_with_a_reader_all_is_well(what, tmp_path):
    done = run(what, tmp_path, subprocess.PIPE)
    assert (done.returncode, done.stderr, bool(done.stdout)) == (0, "", what != "quiet")
