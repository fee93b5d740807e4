"""The watchdog of a rank ends with its rank, and its last message remains readable."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from pyasr.liveness.rank_failures import failure_file, first_failure
from pyasr.liveness.rank_watchdog import RankWatchdog
from pyasr.parallel.ranks import rank

RANK = """
import os, shutil, sys, time
from pathlib import Path
from pyasr.liveness.rank_watchdog import RankWatchdog

failures, heartbeats = map(Path, sys.argv[1:3])
watchdog = RankWatchdog(failures, 60.0, heartbeats)
watchdog.send_name("rank 1 of 2 on node3")
while not [heartbeat for heartbeat in heartbeats.glob("*") if "node3" in heartbeat.read_text()]:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "end, status, sentence",
    [
        ("os.abort()", -signal.SIGABRT, "rank 1 of 2 on node3 died without an error message: "),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "rank 1 of 2 on node3 died without an error message: "),
        ("os._exit(0)", 0, "rank 1 of 2 on node3 died without an error message: "),
        ("shutil.rmtree(heartbeats); os._exit(3)", 3, None),
        ("watchdog.disarm()", 0, None),
        ("watchdog.disarm(); os._exit(1)", 1, None),
    ],
)
def test_watchdog_ends_with_its_rank(end, status, sentence, tmp_path):
    failures = tmp_path / "failures"
    done = subprocess.run(
        [sys.executable, "-c", RANK + end, failures, tmp_path / "heartbeats"],
        stdout=subprocess.PIPE,
        timeout=300,
    )
    assert done.returncode == status
    failure = first_failure(failures)
    assert (failure and failure.sentence.startswith(sentence)) if sentence else failure is None
    assert not list(tmp_path.glob("heartbeats/*"))


class OnlyRank:
    """An MPI job of one rank."""

    name, rank, size = "rank 0 of 1 on node3", 0, 1

    def barrier(self):
        pass

    def abort(self, status):
        raise SystemExit(status)


@pytest.mark.parametrize(
    "written, status, sentence",
    [
        (0, 1, r"the pipe to the watchdog of this rank: the disk is full; .* \(rank 0 of 1 on node3\)"),
        (1, None, None),
    ],
    ids=["its name", "its end"],
)
def test_rank_that_cannot_write_to_its_watchdog(written, status, sentence, tmp_path, monkeypatch):
    """It reports this at its start, but not after its work is done. /dev/full stands for the pipe."""
    watchdog, spec = RankWatchdog.__new__(RankWatchdog), tmp_path / "x.spec.json"
    watchdog._writer = os.open(os.devnull if written else "/dev/full", os.O_WRONLY)
    monkeypatch.setattr(rank, "MpiComm", OnlyRank)
    monkeypatch.setattr(rank, "RankWatchdog", lambda *arguments: watchdog)
    monkeypatch.setattr(
        rank, "run", lambda *arguments: os.dup2(os.open("/dev/full", os.O_WRONLY), watchdog._writer)
    )
    with contextlib.nullcontext() if status is None else pytest.raises(SystemExit, match=str(status)):
        rank.main(["module:function", str(spec), "0", "false", "1"])
    failure = first_failure(failure_file(spec))
    assert (
        failure is None if sentence is None else re.fullmatch(sentence, failure.sentence) and not failure.lost
    )
