"""Recorded and planned trainings of published experiments, by cell and by table.

A training is WORK/TABLE/ROW/COLUMN/seedN: a line of WORK.jsonl, and a line of the file of planned trainings,
which the scripts of local/experiments/ write with --list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from comparison.claims import Cells, Claim
from comparison.kept_runs import KeptRun, cell_of, read_kept
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines
from pyasr.report.systems import family_of

Table = dict[tuple[str, str], list[KeptRun]]  # {(row, column): trainings}; empty: missing


@dataclass(frozen=True)
class Experiments:
    """Claims, trainings by cell and seed, and the names of planned trainings."""

    claims: list[Claim]
    cells: Cells
    planned: Collection[str] = field(default_factory=frozenset)

    @property
    def runs(self) -> list[KeptRun]:
        return [run for seeds in self.cells.values() for run in seeds.values()]

    @property
    def names(self) -> list[str]:
        """Planned cells, in the order of the plan, then others."""
        return list(dict.fromkeys([*map(cell_of, self.planned), *self.cells]))

    @property
    def num_missing(self) -> int:
        """Number of planned trainings without a result."""
        return sum(name.rpartition("/")[2] not in self.cells.get(cell_of(name), ()) for name in self.planned)


def kept_cells(directory: Path) -> Cells:
    """The trainings of all files WORK.jsonl of `directory`, as WORK/TABLE/ROW/COLUMN and then by seed."""
    cells: dict[str, dict[str, KeptRun]] = {}
    for path in sorted(Path(directory).glob("*.jsonl")):
        for run in read_kept(path):
            cells.setdefault(f"{path.stem}/{run.cell}", {})[run.name.rpartition("/")[2]] = run
    return cells


def read_planned(path: Path) -> list[str]:
    """The distinct names of planned trainings. Raises UserError with file and line for an invalid line."""
    names = list(read_lines(path))
    for number, name in enumerate(names, 1):
        if (family_of(name) or "").count("/") != 3:
            raise UserError(
                f"{path}:{number}: '{name}' is not WORK/TABLE/ROW/COLUMN/seedN; write the file with --list "
                "of the scripts in local/experiments"
            )
    return list(dict.fromkeys(names))


def by_table(names: Collection[str], cells: Cells) -> dict[str, Table]:
    """{WORK/TABLE: trainings of these cells}."""
    tables: dict[str, Table] = {}
    for name in names:
        table, row, column = name.rsplit("/", 2)
        tables.setdefault(table, {})[row, column] = list(cells.get(name, {}).values())
    return tables


def rows_of(table: Mapping[tuple[str, str], object]) -> list[str]:
    """The rows of a table, in their order."""
    return list(dict.fromkeys(row for row, _ in table))


def columns_of(table: Mapping[tuple[str, str], object]) -> list[str]:
    """The columns of a table: numbers in ascending order, then words."""
    return sorted({column for _, column in table}, key=place_of)


def place_of(column: str) -> tuple[float, str]:
    """Sort key of a column: (number or fraction A-B, infinity for a word; the name itself)."""
    over, _, under = column.partition("-")
    try:
        return float(over) / float(under or 1), column
    except (ValueError, ZeroDivisionError):
        return float("inf"), column


def verdicts(runs: Collection[KeptRun]) -> str:
    """The distinct verdicts on the networks."""
    return " / ".join(dict.fromkeys(run.verdict for run in runs))


def spread(values: Collection[float | None], form: str) -> str:
    """The mean, with minimum and maximum of several numbers; `-` without numbers."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    low, middle, high = (format(value, form) for value in (min(numbers), mean(numbers), max(numbers)))
    return middle if low == high else f"{middle} ({low} to {high})"
