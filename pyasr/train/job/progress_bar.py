"""Progress of a training job, read from the metrics.jsonl of its ranks: a bar on a terminal, else lines."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from pathlib import Path
from typing import TextIO

from pyasr.base.files.foreign_json import parse_object
from pyasr.base.jobs.in_threads import following
from pyasr.cluster.ranks.rank_progress import rank_progress_text
from pyasr.cluster.runner.group_progress import lasting
from pyasr.train.job.progress import METRICS_FILE, minutes

_PERIOD_S = 0.5


@contextlib.contextmanager
def progress_bar(directory: Path, pattern: str = METRICS_FILE, terminal: TextIO | None = None):
    """While the block runs, show the last line of the newest file DIRECTORY/PATTERN as a bar on `terminal`
    (None: standard error). Shows nothing if it is not a terminal."""
    terminal = terminal or sys.stderr
    if not terminal.isatty():
        yield
        return
    with following(lambda ended: _update_bar(directory, pattern, terminal, ended)):
        yield


def progress_line(directory: Path, pattern: str, log: Path) -> str | None:
    """One-line progress of the job, from the newest metrics file or else its log; None on a terminal, which
    has the bar."""
    if sys.stderr.isatty():
        return None
    line = _newest_interval(directory, pattern)
    return progress_text(line) if line else rank_progress_text(Path(), log)


def progress_text(line: dict) -> str:
    """`epoch 3 (40%), objective -1.2345, accuracy 0.6000, learning rate 0.008, 15000 frames/s, about 42 s
    left`."""
    share = min(line["frames"] / line["total_frames"], 1.0)
    measured = "".join(f", {name} {line[name]:.4f}" for name in ("objective", "accuracy") if name in line)
    measured += f", learning rate {line['rate']:.5g}" if "rate" in line else ""
    return (
        f"epoch {line['epoch']} ({share:.0%}){measured}, {line['frames_per_s']} frames/s, about "
        f"{lasting(line['left_s'])} left"
    )


def _newest_interval(directory: Path, pattern: str) -> dict | None:
    """The last interval of the newest file; if it is in a subdirectory, its epoch is `N of SUBDIRECTORY`."""
    files = sorted(directory.glob(pattern), key=lambda path: path.stat().st_mtime)
    line = last_interval(files[-1]) if files else None
    if line is None or files[-1].parent == directory:
        return line
    return {**line, "epoch": f"{line['epoch']} of {files[-1].parent.name}"}


def _update_bar(directory: Path, pattern: str, terminal: TextIO, ended: threading.Event) -> None:
    while not ended.wait(_PERIOD_S):
        # harmless: it is read again, and the training itself reports disk errors
        with contextlib.suppress(OSError):
            line = _newest_interval(directory, pattern)
            if line is not None:
                terminal.write("\r" + bar(line, shutil.get_terminal_size().columns - 1))
                terminal.flush()
    with contextlib.suppress(OSError):  # harmless: the terminal is gone
        terminal.write("\r\x1b[K")  # to the beginning of the line, clear it


def last_interval(metrics: Path) -> dict | None:
    """The last complete line of metrics.jsonl with an interval, if it is in the last 4 kB; else None."""
    with metrics.open("rb") as f:
        f.seek(max(f.seek(0, 2) - 4096, 0))
        text = f.read().decode("utf-8", "replace")
    return next((line for line in reversed(whole_lines(text)[-2:]) if "left_s" in line), None)


def whole_lines(text: str) -> list[dict]:
    """Parsed lines of metrics.jsonl; truncated lines are skipped."""
    found = []
    for line in text.splitlines():
        # harmless: the run was killed while writing the line, or is still writing it
        with contextlib.suppress(ValueError):
            found.append(parse_object(line))
    return found


def bar(line: dict, columns: int) -> str:
    """`[####------]  40%  epoch 3  objective -1.2345  15000 frames/s  00:42 left`, filling the terminal."""
    share = min(line["frames"] / line["total_frames"], 1.0)
    measured = "".join(f"  {name} {line[name]:.4f}" for name in ("objective", "accuracy") if name in line)
    left = f"  {minutes(line['left_s'])} left" if "left_s" in line else ""
    text = f" {share:4.0%}  epoch {line['epoch']}{measured}  {line['frames_per_s']} frames/s{left}"
    width = max(min(columns - len(text) - 2, 40), 4)
    done = round(width * share)
    return f"[{'#' * done}{'-' * (width - done)}]{text}"[:columns].ljust(columns)
