"""Progress of an MPI job, printed on standard error by the step that waits for it:

    14:02:10 train_mono.py: iteration 12 of 40 (30%), objective -61.2034, 410000 frames/s, about 3 min left,
        1 min so far

Without a terminal, `pyasr.base.pace` sets the pace: fifteen lines in the first hour, then six per hour. On a
terminal, one line is updated. The text comes from the ranks' progress note, else from the last line of their
log.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyasr.base.errors import printable
from pyasr.base.jobs.in_threads import following
from pyasr.base.outputs.progress_note import read_note
from pyasr.base.pace import FIRST_S, Pace
from pyasr.cluster.runner.failure_report import log_tail
from pyasr.cluster.runner.group_progress import lasting

_ON_TERMINAL_S = 1.0
_CLEAR = "\r\x1b[K"
_LINE = re.compile(r"\d\d:\d\d:\d\d \w+(?:\[\d+\])?: (.*)")  # format of pyasr.base.log


def rank_progress_text(note: Path, log: Path) -> str:
    """Progress from the ranks' note, else from the last line of their log."""
    found = read_note(note)
    if found:
        return f"{found.text()}, about {lasting(found.left_s)} left"
    lines = [match[1] for line in (log_tail(log) if log.exists() else []) if (match := _LINE.fullmatch(line))]
    return printable(lines[-1]) if lines else f"the ranks have not reported yet (log: {log})"


@contextlib.contextmanager
def showing_rank_progress(progress: Callable[[], str | None], first_s: float = FIRST_S) -> Iterator[None]:
    """Context that prints the text of `progress` on standard error from time to time; nothing for None."""
    pace, on_terminal = Pace(first_s), sys.stderr.isatty()
    with following(lambda ended: _print_progress(progress, pace, on_terminal, ended)):
        yield


def _print_progress(
    progress: Callable[[], str | None], pace: Pace, on_terminal: bool, ended: threading.Event
) -> None:
    shown = False
    while not ended.wait(_ON_TERMINAL_S if shown and on_terminal else pace.wait_s):
        if not (shown and on_terminal or pace.is_due()):
            continue
        if text := _if_readable(progress):
            line = (
                f"{time.strftime('%H:%M:%S')} {Path(sys.argv[0]).name}: {text}, {lasting(pace.passed_s)} "
                "so far"
            )
            _write(f"{_CLEAR}{line[: _columns() - 1]}" if on_terminal else f"{line}\n")
            shown = True
    if shown and on_terminal:
        _write(_CLEAR)


def _if_readable(progress: Callable[[], str | None]) -> str | None:
    try:
        return progress()
    except OSError:
        return None  # harmless: it is read again later, and ranks report disk errors themselves


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # harmless: standard error is closed
        sys.stderr.write(text)
        sys.stderr.flush()
