"""Reports the rank that was lost first. A killed rank cannot do so, and mpiexec, which then kills all others,
may name any of them."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from pathlib import Path
from typing import NoReturn

from pyasr.base.jobs.parent import die_with_parent
from pyasr.base.system_errors import naming
from pyasr.liveness.heartbeat import Heartbeat
from pyasr.liveness.rank_failures import RankFailure, append_failure

_POLL_S = 5.0  # maximum time between two checks of the rank, and between two heartbeats


class RankWatchdog:
    """The process that mpiexec started, which waits for the end of its child, the rank, and reports it in
    `file` unless `disarm` was called.

    After the report, it ends in the same way as the rank: mpiexec then notices the death and kills the other
    ranks with their watchdogs. Rank and watchdog end with each other.

    The watchdog also kills and reports a rank that has been stopped (SIGSTOP) for more than `timeout_s`
    seconds (0: never), because the other ranks wait for it. That needs neither messages nor a clock in common
    with other hosts. The watchdog cannot watch its own host; for those who can, it writes heartbeats into the
    directory `heartbeats` (unless `timeout_s` is 0).

    Construct it before MPI is initialised: it forks, and the child continues as the rank.
    """

    def __init__(self, file: Path, timeout_s: float = 0.0, heartbeats: Path | None = None):
        reader, self._writer = os.pipe()
        rank = os.fork()
        if rank:
            os.close(self._writer)
            _watch(
                reader,
                file,
                rank,
                timeout_s,
                Heartbeat(heartbeats, rank) if heartbeats and timeout_s else None,
            )
        die_with_parent(signal.SIGKILL)  # also if stopped
        os.close(reader)

    def send_name(self, name: str) -> None:
        """Send this rank's name to the watchdog. Raises UserError if the pipe cannot be written."""
        with naming("the pipe to the watchdog of this rank"):
            self._send(name)

    def disarm(self) -> None:
        """Let the watchdog know that this rank has finished or has reported its error itself."""
        # harmless: the rank's own message and its exit status take precedence over the watchdog's
        with contextlib.suppress(OSError):
            self._send(".")

    def _send(self, line: str) -> None:
        os.write(self._writer, f"{line}\n".encode())


def _watch(reader: int, file: Path, rank: int, timeout_s: float, heartbeat: Heartbeat | None) -> NoReturn:
    """Main function of the watchdog process."""
    # a scheduler may end the starter of a host's ranks without the ranks, which would wait for those of other
    # hosts
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    lines, ended = _read_until_end(reader, rank, timeout_s, heartbeat)
    if not ended:
        os.kill(rank, signal.SIGKILL)
    failure = _failure(lines, ended, timeout_s)
    # else the job has been abandoned, and another may have started
    if failure and (heartbeat is None or heartbeat.file.exists()):
        with contextlib.suppress(OSError):  # harmless: the starter of the rank notices its end, too
            append_failure(file, failure)
    if heartbeat:
        heartbeat.stop()
    _end_like(os.waitpid(rank, 0)[1])


def _end_like(status: int) -> NoReturn:
    """Exit with the status of another process, by the same signal if it was killed by one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _failure(lines: list[str], ended: bool, timeout_s: float) -> RankFailure | None:
    """The report on a rank that sent `lines` and has ended or is stopped; None if it has disarmed the
    watchdog."""
    name = lines[0] if lines else f"a rank on {socket.gethostname()}"
    if not ended:
        stopped = (
            f"{name} did not run for more than {timeout_s:g} s: it was stopped from outside (SIGSTOP) "
            "and then killed"
        )
        return RankFailure(f"{stopped}, see --rank-timeout", lost=True)
    if lines[-1:] == ["."]:
        return None
    killed = "it was killed from outside, often for lack of memory, or crashed in a library"
    return RankFailure(f"{name} died without an error message: {killed}", lost=True)


def _read_until_end(
    reader: int, rank: int, timeout_s: float, heartbeat: Heartbeat | None
) -> tuple[list[str], bool]:
    """(lines, ended): what the rank has sent until it ended, or until it had been stopped for too long.

    Time is counted in checks: a watchdog that was stopped itself, possibly with its whole host, does not
    count.
    """
    received, poll_s, stopped_s = b"", min(_POLL_S, timeout_s / 10), 0.0
    if heartbeat:
        heartbeat.start("")
    while True:
        if select.select([reader], [], [], poll_s or None)[0]:
            data = os.read(reader, 4096)
            if not data:
                return received.decode().splitlines(), True
            if heartbeat and not received:
                heartbeat.start(data.decode().partition("\n")[0])
            received += data
            continue
        stopped_s = stopped_s + poll_s if _is_stopped(rank) else 0.0
        if stopped_s > timeout_s:
            return received.decode().splitlines(), False
        if heartbeat:
            heartbeat.beat()


def _is_stopped(process: int) -> bool:
    """Whether a process has been stopped by a signal (Linux; elsewhere unknown: False)."""
    try:
        with open(f"/proc/{process}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False  # harmless: the process has just ended, or there is no /proc
