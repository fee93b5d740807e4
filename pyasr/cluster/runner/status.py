"""The status of an ended job: a JSON file next to its log, written by atomic rename. It decides whether the
job succeeded."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyasr.base.outputs.output import atomic_write

NOT_PROVED = "the command ended with status 0 but {marker} was not written; a rank or a node was lost"


@dataclass(frozen=True)
class JobStatus:
    """How one job ended.

    status          exit status as a shell gives it (128 + signal when a signal ended it)
    signal          the signal that ended it, or None
    stopped         ended by the runner because another job had failed
    begin, end      seconds since 1970
    peak_memory_mb  largest resident memory of one of its processes
    reason          the scheduler's reason, for a job that could not write its own status; else ""
    host_lost       it ended because its host was lost
    run_id          the run of the batch runner that waits for it; "" if run.pl was called directly
    """

    job: int
    status: int
    signal: int | None
    stopped: bool
    host: str
    begin: float
    end: float
    peak_memory_mb: float
    command: str
    reason: str = ""
    host_lost: bool = False
    run_id: str = ""

    @property
    def ok(self) -> bool:
        """Ended by itself with exit status 0."""
        return self.status == 0

    def how(self) -> str:
        """`exit status 1`, `killed by signal 9`, or the scheduler's reason."""
        return self.reason or self._how_by_itself()

    def _how_by_itself(self) -> str:
        return f"exit status {self.status}" if self.signal is None else f"killed by signal {self.signal}"


def status_path(log: Path) -> Path:
    """`x.3.log` -> `x.3.status`."""
    log = Path(log)
    return log.with_name(log.name.removesuffix(".log") + ".status")


def write_status(log: Path, status: JobStatus) -> None:
    """Write the status next to its log, by atomic rename."""
    with atomic_write(status_path(log)) as f:
        json.dump(asdict(status), f, indent=1)
        f.write("\n")


def read_status(log: Path) -> JobStatus | None:
    """The status next to `log`; None if the job has not ended or its runner writes no status files."""
    try:
        return JobStatus(**json.loads(status_path(log).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def failures(logs: Iterable[Path]) -> list[tuple[Path, JobStatus]]:
    """Logs and statuses of the jobs that failed by themselves, in the order in which they ended, without jobs
    that the runner stopped."""
    found = [
        (log, status) for log in logs if (status := read_status(log)) and not status.ok and not status.stopped
    ]
    return sorted(found, key=lambda item: item[1].end)


def from_wait(job: int, wait_status: int, usage, begin: float, command: str, stopped: bool) -> JobStatus:
    """The status of a job from what `os.wait4` returned for it."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        code = 128 - code
    number = code - 128 if 128 < code <= 192 else None
    peak_memory_mb = round(usage.ru_maxrss / 1024, 1)  # Linux counts in KiB
    return JobStatus(
        job,
        code,
        number,
        stopped,
        socket.gethostname(),
        round(begin, 3),
        round(time.time(), 3),
        peak_memory_mb,
        command,
    )
