"""A failing rank ends the whole job, whatever the others wait for, and is named. No process remains."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_workers import alive

from pyasr.base.cli.job_options import JobOptions, RankJobOptions
from pyasr.base.errors import UserError
from pyasr.base.log import setup
from pyasr.cluster.ranks.jobs import RankLost, Recovery, run_ranks

pytestmark = pytest.mark.usefixtures("jobs_import_tests")


def run(function, directory, num_ranks=3, recovery=Recovery()):
    run_ranks(
        JobOptions(),
        directory / "log" / "x.log",
        f"rank_workers:{function}",
        JobOptions(cmd=str(directory)),
        num_ranks,
        recovery,
    )


def recovering(max_restarts=2, usable=lambda most: most):
    return Recovery(
        RankJobOptions(max_restarts=max_restarts, rank_timeout=0.5), usable, lambda: "from 70 frames"
    )


@pytest.mark.parametrize(
    "function, sentence",
    [
        ("rank_one_raises", r"ZeroDivisionError: no frames \(rank 1 of 3 on \S+\)"),
        ("rank_one_user_error", r"align again \(rank 1 of 3 on \S+\)"),
        ("rank_one_killed", r"rank 1 of 3 on \S+ died without an error message: it was killed from outside"),
        (
            "rank_one_killed_with_a_late_watchdog",
            r"rank 1 of 3 on \S+ died without an error message: it was killed from outside",
        ),
        (
            "rank_one_killed_with_a_late_watchdog_and_missed",
            r"rank 1 of 3 on \S+ died without an error message: it was killed from outside",
        ),
        (
            "rank_one_killed_and_no_memory_kept",
            r"rank 1 of 3 on \S+ died without an error message: it was killed from outside",
        ),
        ("rank_one_exits", r"before all ranks were done \(rank 1 of 3"),
        ("lost_before_the_end", r"rank \d of 3 on \S+ died without an error message"),
    ],
)
def test_failing_rank_ends_job_without_retry(function, sentence, tmp_path, capfd):
    """A rank that raised an error would raise it again, so there is no second attempt."""
    is_lost = "without an error message" in sentence
    with pytest.raises(UserError, match=sentence) as error:
        run(function, tmp_path, recovery=recovering(0 if is_lost else 2))
    assert isinstance(error.value, RankLost) == is_lost
    assert capfd.readouterr().err.count("failed, log is in") == 1
    pids = re.findall(r"is process (\d+)", (tmp_path / "log" / "x.log").read_text())
    wait_until(lambda: not any(alive(int(pid)) for pid in pids))


@contextlib.contextmanager
def sleeping_ranks(tmp_path):
    """(process of a step, processes of its two ranks)"""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from test_rank import run
from pathlib import Path
run("sleeps", Path({str(tmp_path)!r}), 2)
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as step:
        files = [tmp_path / f"rank{rank}.pid" for rank in (0, 1)]
        try:
            wait_until(lambda: all(path.exists() and path.read_text() for path in files))
            yield step, [int(path.read_text()) for path in files]
        finally:
            step.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_step_ends_its_ranks(number, tmp_path):
    with sleeping_ranks(tmp_path) as (step, pids):
        step.send_signal(number)
        step.wait(60)
        wait_until(lambda: not any(map(alive, pids)))


def test_killed_launcher_ends_its_ranks(tmp_path):
    """Grid Engine kills the processes that it knows on each host, which may not include the ranks."""
    from slurm_cluster import parent_of  # not if a step imports this module

    with sleeping_ranks(tmp_path) as (step, pids):
        watchdogs = list(map(parent_of, pids))
        for starter in set(map(parent_of, watchdogs)):
            os.kill(starter, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, pids + watchdogs)))
        assert step.wait(60) == 1


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_missing_mpiexec_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("pyasr.cluster.runner.mpi.ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    with pytest.raises(
        UserError,
        match=(
            r"mpiexec is missing in /nowhere/bin; install an MPI with '.*pip install mpi4py==\S+ "
            r"mpich==\S+'"
        ),
    ):
        run("sleeps", tmp_path)
    assert not (tmp_path / "log").exists()


def test_mismatched_mpiexec_is_reported(tmp_path, monkeypatch):
    """If mpiexec and mpi4py use different MPIs, each rank would do all the work, and all would write the same
    files."""
    mpiexec = tmp_path / "mpiexec"
    # mpiexec -n 2 COMMAND
    mpiexec.write_text('#!/bin/bash\nfor _ in $(seq "$2"); do "${@:3}" & done\nwait\n')
    mpiexec.chmod(0o755)
    monkeypatch.setenv("PYASR_MPIEXEC", str(mpiexec))
    with pytest.raises(
        UserError,
        match=(
            "2 ranks were started, but MPI sees 1: the mpiexec that started them does not belong to "
            "mpi4py's MPI"
        ),
    ):
        run("rank_one_raises", tmp_path, 2)


def attempts(directory):
    """Number of ranks of each attempt."""
    return [int(line) for line in (directory / "attempts").read_text().split()]


def test_job_continues_without_lost_ranks(tmp_path, capsys):
    """The last of three ranks is killed, the last of two is stopped. The remaining one ends normally."""
    setup("test")
    run("last_lost_until_alone", tmp_path, recovery=recovering())
    assert attempts(tmp_path) == [3, 2, 1] and not list((tmp_path / "log").glob("*.done"))
    first, second = capsys.readouterr().out.splitlines()
    assert re.search(
        r"rank 2 of 3 on \S+ died without an error message: .*; 2 ranks continue from 70 frames, restart 1 "
        r"of at most 2 "
        r"\(log .*x\.1\.log\)",
        first,
    )
    assert re.search(
        r"rank 1 of 2 on \S+ did not run for more than 0.5 s: .*; 1 rank continues from 70 frames, restart "
        r"2 of at most 2",
        second,
    )
    assert "is process" in (tmp_path / "log" / "x.1.log").read_text()


def test_frozen_host_is_detected(tmp_path, capsys):
    """No process on the host can report it. When the host resumes, its watchdogs do not disturb the job that
    continues without it."""
    setup("test")
    run("host_of_the_last_two_freezes", tmp_path, recovery=recovering())
    assert attempts(tmp_path) == [3, 1]
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "restart" in line]
    silent = (
        r"rank 1 of 3 on (\S+), rank 2 of 3 on \1: no heartbeat for more than 5 s: the host has frozen "
        r"or is cut off"
    )
    assert re.search(
        rf"{silent} from the network, see --rank-timeout; 1 rank continues from 70 frames, restart 1 of at "
        r"most 2",
        line,
    )
    pids = [int(pid) for file in tmp_path.glob("frozen.*") for pid in file.read_text().split()]
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(alive, pids)))
    assert not list((tmp_path / "log").glob("*.error")) and not list((tmp_path / "log").glob("*.alive"))


def test_killed_watchdog_counts_as_lost_rank(tmp_path, capsys):
    setup("test")
    run("watchdog_killed", tmp_path, 2, recovering())
    assert attempts(tmp_path) == [2, 1]
    assert (
        "a rank was lost; it is unknown which; 1 rank continues from 70 frames, restart 1 of at most 2"
        in capsys.readouterr().out
    )


def test_job_without_surviving_ranks_restarts_with_same_number(tmp_path, monkeypatch):
    """Its only host is frozen, or no rank sends heartbeats. Of four remaining ranks, three lose one more."""
    lost, begun = [4, 1], []

    def once(jobs, log, function, spec, num_ranks, how):
        log.touch()
        begun.append(num_ranks)
        if len(begun) <= len(lost):
            raise RankLost("nothing was heard", "nothing was heard", lost[len(begun) - 1])

    monkeypatch.setattr("pyasr.cluster.ranks.jobs._run_ranks_once", once)
    run_ranks(JobOptions(), tmp_path / "x.log", "a:b", JobOptions(), 4, recovering())
    assert begun == [4, 4, 3]


def test_number_of_restarts_is_limited(tmp_path):
    """Numbers of ranks that the scheme does not support are skipped. If there is no other number, it stays
    the same."""
    with pytest.raises(RankLost, match="died without an error message"):
        run("rank_zero_killed", tmp_path, 4, recovering(2, lambda most: 2 if most >= 2 else 0))
    assert attempts(tmp_path) == [4, 2, 2]


def test_supported_numbers_of_ranks_per_scheme():
    from pyasr.parallel.strategies import (
        mixing_options,
        usable_ranks,
    )  # not at the top, because they import torch

    for name, usable in (
        ("allreduce", [7, 3, 1]),
        ("butterfly", [4, 2, 1]),
        ("dpsgd", [7, 3, 1]),
        ("asgd", [7, 3, 1]),
    ):
        assert [usable_ranks(mixing_options(name), most) for most in (7, 3, 1)] == usable
    assert usable_ranks(mixing_options("asgd"), 2) == 1  # no server with a single shard
    assert usable_ranks(mixing_options(), 0) == 0
