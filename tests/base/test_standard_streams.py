"""Programs whose caller has closed standard input, output or error."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pyasr.base.standard_streams import open_standard_streams
open_standard_streams()
assert os.pipe()[0] > 2 and sys.stdin.buffer.read() == b""
print("lost", flush=True)
print("lost", file=sys.stderr, flush=True)
child = "import os, sys; os.fstat(0), os.fstat(1), os.fstat(2), open('seen', 'w').write('whole')"
os.execv(sys.executable, [sys.executable, "-c", child])
"""
CLOSED = ["</dev/null >&- 2>&-", "<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_streams_behave_like_dev_null(closed, tmp_path):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and (tmp_path / "seen").read_text() == "whole", done
    assert ("lost" in done.stdout, "lost" in done.stderr) == (
        ">&-" not in closed.split(),
        "2>&-" not in closed,
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_run_pl_without_standard_streams(closed, tmp_path):
    assert (
        subprocess.run(
            ["bash", "-c", f"run.pl JOB=1:2 x.JOB.log echo done {closed}"], cwd=tmp_path
        ).returncode
        == 0
    )
    assert "\ndone\n" in (tmp_path / "x.2.log").read_text()


def test_step_without_standard_input_and_output(tmp_path):
    """It prints its one sentence as usual."""
    done = subprocess.run(
        ["bash", "-c", "make_mfcc.py data <&- >&-"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (
        done.returncode == 1
        and done.stderr.startswith("make_mfcc.py: error: data")
        and done.stderr.count("\n") == 1
    ), done
