"""Tables of trainings: results of cells of WORK/TABLE by rows and columns, and times to frame accuracies."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import mean

from comparison.claims import LEARNS, seconds_to
from comparison.experiments import Experiments, Table, by_table, columns_of, rows_of, spread, verdicts
from comparison.kept_runs import KeptRun
from pyasr.report.text_table import markdown_table

MISSING = "missing"
_MEASURES: dict[str, tuple[Callable[[KeptRun], float | None], str]] = {
    "Held-out loss": (lambda run: run.loss, ".3f"),
    "Loss of the model of one learner": (lambda run: run.learner_loss, ".3f"),
    "Test WER %": (lambda run: run.wer, ".1f"),
    "Test WER % of the model of one learner": (lambda run: run.learner_wer, ".1f"),
    "Virtual time of an epoch, s": (lambda run: run.epoch_s, ".0f"),
    "Speed-up over the computing of one learner": (lambda run: run.speed_up, ".2f"),
}
_TIMED = "shards"  # the table whose times to frame accuracies were published
_LEVELS = (80, 90, 95)


def section(title: str, *parts: str) -> str:
    """Tables and paragraphs under a title; empty parts are omitted."""
    return "\n\n".join([f"## {title}", *filter(None, parts)]) + "\n"


def overview(found: Experiments) -> str:
    """The numbers of existing and planned trainings of each table."""
    planned = [name.rsplit("/", 3)[0] for name in found.planned]
    rows = []
    for name, table in by_table(found.names, found.cells).items():
        work, _, title = name.partition("/")
        there, wanted = sum(map(len, table.values())), planned.count(name)
        rows.append(
            [work, title, str(len(table)), str(there), str(wanted or "-"), f"`local/experiments/{work}.sh`"]
        )
    return markdown_table(["work", "table", "cells", "trainings", "planned", "command"], rows)


def tables(found: Experiments) -> list[str]:
    """A section for each table with a training."""
    return [
        _section(name, table)
        for name, table in by_table(found.names, found.cells).items()
        if any(table.values())
    ]


def _section(name: str, table: Table) -> str:
    every = [run for runs in table.values() for run in runs]
    parts = [
        _titled(title, pivot(table, lambda runs: spread([value(run) for run in runs], form)))
        for title, (value, form) in _MEASURES.items()
        if any(value(run) is not None for run in every)
    ]
    if any(run.verdict != LEARNS for run in every):
        parts.insert(0, _titled("Outcome", pivot(table, verdicts)))
    if name.endswith(f"/{_TIMED}"):
        parts += [_to_accuracy(table, level) for level in _LEVELS]
    return section(name.replace("/", ": "), *parts)


def _titled(title: str, table: str) -> str:
    return f"**{title}**\n\n{table}"


def pivot(table: Table, value: Callable[[list[KeptRun]], str]) -> str:
    """A line per row of the table; MISSING for cells without a training, empty if there is no such cell."""
    columns = columns_of(table)
    body = [[row, *(_cell(table, (row, column), value) for column in columns)] for row in rows_of(table)]
    return markdown_table(["", *columns], body)


def _cell(table: Table, place: tuple[str, str], value: Callable[[list[KeptRun]], str]) -> str:
    if place not in table:
        return ""
    return value(table[place]) if table[place] else MISSING


def _to_accuracy(table: Table, level: int) -> str:
    """Virtual hours to a share of the final frame accuracy of the first column, efficiencies in brackets;
    without the rows in which a training of that column is missing or has no final accuracy."""
    first, goals = columns_of(table)[0], {}
    for row in rows_of(table):
        every = [run.accuracy for run in table.get((row, first), [])]
        known = [accuracy for accuracy in every if accuracy is not None]
        if known and len(known) == len(every):
            goals[row] = mean(known) * level / 100
    timed = {
        place: _seconds(runs, goals[place[0]]) for place, runs in table.items() if place[0] in goals and runs
    }
    body = [
        [f"{row}, {goals[row]:.1f} %", *(_hours(timed, row, column, first) for column in columns_of(table))]
        for row in goals
    ]
    title = f"Virtual hours until frame accuracy is {level} % of that of {first} in the end (efficiency %)"
    return _titled(title, markdown_table(["", *columns_of(table)], body)) if body else ""


def _seconds(runs: list[KeptRun], goal: float) -> float:
    return mean(seconds_to(goal, run) for run in runs)


def _hours(timed: dict[tuple[str, str], float], row: str, column: str, first: str) -> str:
    """The time with the workers of a column, and its efficiency: the time of the first column divided by it
    and by the ratio of workers."""
    seconds = timed.get((row, column))
    if seconds is None:
        return MISSING
    if math.isinf(seconds):
        return "never"
    efficiency = 100 * timed[row, first] * float(first) / (seconds * float(column))
    return f"{seconds / 3600:.3g} ({efficiency:.0f})"
