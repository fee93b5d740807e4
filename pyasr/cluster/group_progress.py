"""How far a group of jobs is, for those who wait for it: `14:02:10 make_mfcc.py: make_mfcc: 37/50 jobs, 2 min, about 42 s left`.

Nothing is said of single jobs, nor in the first 20 seconds. On a terminal one line is kept up to date; elsewhere there are plain lines,
each after half as long again as the one before: some ten in an hour, twenty in a day.
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
from pyasr.cluster.command_line import Request

_ON_TERMINAL_S = 1.0
_BEGIN_OF_LINE, _CLEAR = "\r", "\x1b[K"


class GroupProgress:
    """Of one group, whose `num_ended` says how many of its jobs have ended."""

    def __init__(self, request: Request, num_ended: Callable[[], int], write: Callable[[str], object], on_terminal: bool,
                 clock: Callable[[], float] = time.monotonic):  # fmt: skip
        self.what, self.total = _name_of(request), len(request.jobs)
        self.num_ended, self.write, self.on_terminal, self.clock = num_ended, write, on_terminal, clock
        self.begin, self.shown = clock(), False

    def tell(self) -> float:
        """Say how far the group is; after how many seconds to do so again."""
        passed_s = self.clock() - self.begin
        ended = self.num_ended()
        left = f", about {lasting(passed_s * (self.total - ended) / ended)} left" if ended else ""
        line = f"{time.strftime('%H:%M:%S')} {self.what}: {ended}/{self.total} jobs, {lasting(passed_s)}{left}"
        self.write(f"{_CLEAR}{line}{_BEGIN_OF_LINE}" if self.on_terminal else f"{line}\n")
        self.shown = True
        return _ON_TERMINAL_S if self.on_terminal else passed_s * (GROWTH - 1)

    def close(self) -> None:
        """Leave the terminal's line to others."""
        if self.shown and self.on_terminal:
            self.write(_CLEAR)


@contextlib.contextmanager
def telling(request: Request, num_ended: Callable[[], int], first_s: float = FIRST_S) -> Iterator[None]:
    """While this lasts, a timer (SIGALRM) has progress told on standard error, at first after `first_s` seconds."""
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
    return f"{int(seconds)} s" if minutes < 1 else f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _name_of(request: Request) -> str:
    """The step, or else the runner, and what its log is called without the job's number: `log/align.JOB.log` -> `align`."""
    what = Path(request.log.replace(request.name, "")).name.removesuffix(".log").strip(".-_")
    return ": ".join(filter(None, [os.environ.get("PYASR_STEP") or Path(sys.argv[0]).name, what]))


def _write(text: str) -> None:
    """To standard error, past its buffer: a signal may have come while that was being written to."""
    with contextlib.suppress(OSError):  # harmless: nobody listens any more
        os.write(sys.stderr.fileno(), text.encode("utf-8", "surrogateescape"))
