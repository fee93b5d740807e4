"""What the sections of a comparison of parallel schemes have in common: tables of runs, cells, paragraphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pyasr.report.parallel_runs import Run
from pyasr.report.text_table import markdown_table


def pivot(runs: Iterable[Run], row: str, column: str, value: Callable[[Run], str], label: str = "{}") -> str:
    """A table of `value` with a line for each `row` and a column for each `column`, which are names of properties."""
    cells = {(getattr(run, row), getattr(run, column)): value(run) for run in runs}
    rows, columns = dict.fromkeys(key for key, _ in cells), sorted({key for _, key in cells})
    body = [[str(r), *(cells.get((r, c), "-") for c in columns)] for r in rows]
    return markdown_table([row, *(label.format(_short(c)) for c in columns)], body)


def _short(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def loss(run: Run | None) -> str:
    """Held-out loss and accuracy, with the verdict on a network that does not learn."""
    if run is None:
        return "-"
    numbers = "" if run.diverged else f"{run.loss:.3f} / {run.accuracy:.1f}"
    return ", ".join(filter(None, [numbers, "" if run.learns else run.verdict]))


def wer(run: Run | None) -> str:
    """Of the test set."""
    return cell(run and run.wer, ".1f")


def cell(value, form: str = "g") -> str:
    """A number, if there is one."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def section(title: str, *parts: str, sentences: Iterable[str] = ()) -> str:
    """Tables and paragraphs under a title, and a list; what is empty is left out."""
    bullets = "\n".join(f"* {sentence}" for sentence in sentences if sentence)
    return "\n\n".join([f"## {title}", *filter(None, [*parts, bullets])]) + "\n"
