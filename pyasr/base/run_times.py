"""How long an output took to make: in one run, or in several of which each went on with what the one before had left behind.

The file `.runs` in the scratch directory has a line 'BEGIN END' for each run, in seconds since 1970. One that was killed has put down its
begin alone: it lasted until something in the directory last changed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

RUNS = ".runs"


@contextlib.contextmanager
def timed_run(scratch: Path) -> Iterator[Callable[[], float]]:
    """Put down when a run begins, and when it is broken off. Gives a function: seconds that it and those before it have taken so far."""
    runs = scratch / RUNS
    earlier, begin = _seconds_of(runs), time.time()
    _append(runs, f"{begin:.3f}")
    try:
        yield lambda: round(earlier + time.time() - begin, 3)
    except BaseException:
        with contextlib.suppress(OSError):  # harmless: it then counts as killed
            _append(runs, f" {time.time():.3f}\n")
        raise


def last_change(directory: Path) -> float:
    """Of anything in a directory, in seconds since 1970."""
    return max(map(changed, directory.rglob("*")))


def changed(path: Path) -> float:
    """Seconds since 1970; 0 for what was renamed or removed meanwhile."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _seconds_of(runs: Path) -> float:
    """Of all runs that have a line; one that was killed is given its end."""
    if not runs.exists():
        return 0.0
    if not _read(runs).endswith("\n"):
        _append(runs, f" {min(last_change(runs.parent), time.time()):.3f}\n")
    return sum(map(_seconds, _read(runs).splitlines()))


def _seconds(line: str) -> float:
    try:
        begin, *_, end = map(float, line.split())
        return max(end - begin, 0.0)
    except ValueError:
        return 0.0  # harmless: the machine has crashed while it was written


def _read(runs: Path) -> str:
    return runs.read_text(encoding="utf-8", errors="replace")


def _append(runs: Path, text: str) -> None:
    with runs.open("a", encoding="utf-8") as f:
        f.write(text)
