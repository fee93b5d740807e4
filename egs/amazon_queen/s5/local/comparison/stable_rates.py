"""Largest batches and learning rates with which schemes learn, and the smallest larger ones with which they
do not."""

from __future__ import annotations

from collections.abc import Mapping

from comparison.cell_tables import MISSING
from comparison.claims import LEARNS
from comparison.experiments import Experiments, by_table, place_of
from comparison.kept_runs import KeptRun
from pyasr.report.text_table import markdown_table

BATCH, RATE = "ibm/batch", "ibm/rate"
WHOLE = "8192"  # the batch for which rates vary, and the column of BATCH with the full rate
HOW = """\
IBM's schemes on 16 learners. In the first two columns, the learning rate is proportional to the batch. \
In the last two, the batch is 8192
and the rate is the published one times a factor. *Learns* is the largest value at which the networks of all \
seeds learn, with their mean
loss. *Fails* is the smallest larger value at which a network does not."""
_HEAD = ["scheme", "batch: learns", "fails", "rate: learns", "fails"]


def stable_rates(found: Experiments) -> str:
    """A row for each scheme of these tables; empty if they are not planned."""
    tables = by_table(found.names, found.cells)
    batches, rates = (_by_row(tables.get(name, {})) for name in (BATCH, RATE))
    for scheme, runs in rates.items():
        runs["1"] = batches.get(scheme, {}).get(WHOLE, [])
    rows = [
        [scheme, *_limits(columns), *_limits(rates.get(scheme, {}))]
        for scheme, columns in batches.items()
        if len(columns) > 1
    ]
    return markdown_table(_HEAD, rows) if rows else ""


def _by_row(table: Mapping[tuple[str, str], list[KeptRun]]) -> dict[str, dict[str, list[KeptRun]]]:
    rows: dict[str, dict[str, list[KeptRun]]] = {}
    for (row, column), runs in table.items():
        rows.setdefault(row, {})[column] = runs
    return rows


def _limits(columns: Mapping[str, list[KeptRun]]) -> tuple[str, str]:
    """The largest trained value that learns, with its loss, and the smallest trained value above it that does
    not."""
    there = sorted((name for name in columns if columns[name]), key=place_of)
    if not there:
        return (MISSING, MISSING) if columns else ("", "")
    learns = [name for name in there if all(run.verdict == LEARNS for run in columns[name])]
    above = there[there.index(learns[-1]) + 1 :] if learns else there
    return _with_loss(learns[-1], columns) if learns else "none", _as_fraction(above[0]) if above else "none"


def _with_loss(name: str, columns: Mapping[str, list[KeptRun]]) -> str:
    losses = [run.loss for run in columns[name] if run.loss is not None]
    return f"{_as_fraction(name)} ({sum(losses) / len(losses):.3f})"


def _as_fraction(name: str) -> str:
    return name.replace("-", "/")
