"""The time spent on an output by one run or by several runs that resumed each other, and the way in which the
last run ended.

The file `.runs` in the scratch directory has a line `BEGIN on HOST END HOW` for each run, with times in
seconds since 1970. The line of a killed run ends after the host; its time is counted up to the last change in
the directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import printable

RUNS = ".runs"
_CUT_OFF = r"( \S*)??"  # a word that was cut off by a crash of the machine
_RUN = re.compile(rf"(?P<begin>\S+)( on (?P<host>\S+))?{_CUT_OFF}( (?P<end>\d+\.\d{{3}})( (?P<how>.+))?)?")


@dataclass(frozen=True)
class Run:
    """The last run on an output.

    host  the host on which it started; "" if the line was cut off by a crash of the machine
    end   time of the interruption, in seconds since 1970; None: it is running, or was killed
    how   `stopped by SIGTERM`, `failed: SENTENCE`; "" if it was killed
    """

    host: str
    end: float | None
    how: str


@contextlib.contextmanager
def timed_run(scratch: Path) -> Iterator[Callable[[], float]]:
    """Record the start of a run, and its interruption. Yields a function that returns the total seconds of
    this run and earlier ones."""
    runs = scratch / RUNS
    earlier, begin = _seconds_of(runs), time.time()
    _append(runs, f"{begin:.3f} on {os.uname().nodename}")
    try:
        yield lambda: round(earlier + time.time() - begin, 3)
    except BaseException as error:
        with contextlib.suppress(OSError):  # harmless: the run then counts as killed
            _append(runs, f" {time.time():.3f} {_how(error)}\n")
        raise


def _how(error: BaseException) -> str:
    """The reason of an interruption, as one line."""
    if isinstance(error, KeyboardInterrupt):
        return f"stopped by {signal.Signals(getattr(error, 'number', signal.SIGINT)).name}"
    return printable(f"failed: {error or type(error).__name__}")


def last_run(scratch: Path) -> Run | None:
    """The last run in a scratch directory; None if none is recorded."""
    lines = _read(scratch / RUNS).splitlines() if (scratch / RUNS).exists() else []
    found = _RUN.fullmatch(lines[-1]) if lines else None
    if found is None:
        return None
    return Run(found["host"] or "", _number(found["end"]), found["how"] or "")


def last_change(directory: Path) -> float:
    """The time of the latest change of anything in a directory, in seconds since 1970."""
    return max(map(changed, directory.rglob("*")))


def changed(path: Path) -> float:
    """The time of a file's last change, in seconds since 1970; 0 if it was renamed or removed meanwhile."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _seconds_of(runs: Path) -> float:
    """Seconds of all runs with a line. The line of a run that was killed is completed with its end."""
    if not runs.exists():
        return 0.0
    if not _read(runs).endswith("\n"):
        _append(runs, f" {min(last_change(runs.parent), time.time()):.3f}\n")
    return sum(map(_seconds, _read(runs).splitlines()))


def _seconds(line: str) -> float:
    """The duration of the run of a line; 0 for a line that was cut off."""
    found = _RUN.fullmatch(line)
    begin, end = (_number(found["begin"]), _number(found["end"])) if found else (None, None)
    return 0.0 if begin is None or end is None else max(end - begin, 0.0)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None  # harmless: the line was cut off


def _read(runs: Path) -> str:
    return runs.read_text(encoding="utf-8", errors="replace")


def _append(runs: Path, text: str) -> None:
    with runs.open("a", encoding="utf-8") as f:
        f.write(text)
