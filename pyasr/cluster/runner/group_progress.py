"""Progress of a group of jobs on standard error: `14:02:10 make_mfcc.py: make_mfcc: 37/50 jobs, 2 min, about
42 s left`.

Single jobs are not reported, and nothing is printed in the first 20 seconds. On a terminal, one line is
updated. Elsewhere, each line follows after 1.5 times the previous interval: about ten lines in an hour,
twenty in a day.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyasr.base.pace import FIRST_S, GROWTH
from pyasr.cluster.runner.command_line import Request

_ON_TERMINAL_S = 1.0
_BEGIN_OF_LINE, _CLEAR = "\r", "\x1b[K"


class GroupProgress:
    """Progress of one group; `num_ended` returns the number of jobs that have ended."""

    def __init__(
        self,
        request: Request,
        num_ended: Callable[[], int],
        write: Callable[[str], object],
        on_terminal: bool,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.what, self.total = _name_of(request), len(request.jobs)
        self.num_ended, self.write, self.on_terminal, self.clock = num_ended, write, on_terminal, clock
        self.begin, self.shown = clock(), False

    def tell(self) -> float:
        """Print the progress; return the seconds until the next line."""
        passed_s = self.clock() - self.begin
        ended = self.num_ended()
        left = f", about {lasting(passed_s * (self.total - ended) / ended)} left" if ended else ""
        line = (
            f"{time.strftime('%H:%M:%S')} {self.what}: {ended}/{self.total} jobs, {lasting(passed_s)}{left}"
        )
        self.write(f"{_CLEAR}{line}{_BEGIN_OF_LINE}" if self.on_terminal else f"{line}\n")
        self.shown = True
        return _ON_TERMINAL_S if self.on_terminal else passed_s * (GROWTH - 1)

    def close(self) -> None:
        """Clear the line on the terminal."""
        if self.shown and self.on_terminal:
            self.write(_CLEAR)


@contextlib.contextmanager
def showing_progress(
    request: Request, num_ended: Callable[[], int], first_s: float = FIRST_S
) -> Iterator[None]:
    """Context in which a timer (SIGALRM) prints progress on standard error, for the first time after
    `first_s` seconds."""
    if len(request.jobs) == 1:
        yield
        return
    progress = GroupProgress(request, num_ended, _write, os.isatty(sys.stderr.fileno()))

    def alarm(number, frame):
        signal.setitimer(signal.ITIMER_REAL, progress.tell())

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, first_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        progress.close()


def lasting(seconds: float) -> str:
    """`40 s`, `2 min`, `1 h 05 min`"""
    minutes = int(seconds) // 60
    return (
        f"{int(seconds)} s"
        if minutes < 1
        else f"{minutes} min"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def _name_of(request: Request) -> str:
    """The step (or runner) and the name of its log without job number: `log/align.JOB.log` -> `align`."""
    what = Path(request.log.replace(request.name, "")).name.removesuffix(".log").strip(".-_")
    return ": ".join(filter(None, [os.environ.get("PYASR_STEP") or Path(sys.argv[0]).name, what]))


def _write(text: str) -> None:
    """Write to standard error, bypassing its buffer: a signal may have interrupted a write to that buffer."""
    with contextlib.suppress(OSError):  # harmless: standard error is closed
        os.write(sys.stderr.fileno(), text.encode("utf-8", "surrogateescape"))
