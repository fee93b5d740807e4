"""The tables of a published experiment, with our numbers in a column next to the published ones.

The file has lines of five fields separated by tabs, `TABLE ROW COLUMN PUBLISHED MEASURE`: the place of a
number, the published number, and the measure of ours, with directories relative to that of the experiment:

    wer SYSTEM/DECODING [SUBSET]    word error rate in per cent, optionally of a subset of the stm
    hours SYSTEM                    hours of training
    speed-up SYSTEM OTHER           hours of OTHER, relative to those of SYSTEM
    slow-down SYSTEM OTHER          hours of SYSTEM, relative to those of OTHER
    loss SYSTEM                     negative objective of the held-out frames at the end of training
    none                            no counterpart in this recipe

Lines that begin with `# ` are comments; the first is the title of the page, the others are sentences on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_object
from pyasr.base.outputs.fingerprint import read_done
from pyasr.io.text_tables import read_lines
from pyasr.report.provenance import commands, made_with, records
from pyasr.report.text_table import markdown_table
from pyasr.score.score_dir import SUMMARY, chosen_wer

HEAD = "Written by `utils/compare_published.py`; not edited by hand."
MISSING, NONE = "missing", "none"
_FIELDS = ("TABLE", "ROW", "COLUMN", "PUBLISHED", "MEASURE")
_OURS = "ours"


@dataclass(frozen=True)
class Cell:
    """A published number and its counterpart: the measure and its arguments."""

    table: str
    row: str
    column: str
    published: str
    measure: str
    of: tuple[str, ...]

    @property
    def systems(self) -> list[str]:
        """The model directories that the measure needs, relative to the experiment's directory."""
        return [name.partition("/")[0] for name in self.of[: 1 if self.measure == "wer" else 2]]

    def ours(self, exp: Path) -> str:
        """Our number as text; `missing` until its systems exist."""
        value = MEASURES[self.measure](exp, *self.of) if self.measure != NONE else None
        return f"{value:.2f}" if value is not None else "-" if self.measure == NONE else MISSING


@dataclass(frozen=True)
class Experiment:
    """The content of a file of published tables."""

    title: str
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]


def read_experiment(path: Path) -> Experiment:
    """Read the file `path`. Raises UserError with file and line for an invalid line, and for a repeated place
    of a table."""
    comments: list[str] = []
    cells: dict[tuple[str, str, str], Cell] = {}
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("#"):
            comments.append(line.removeprefix("#").strip())
        elif line.strip():
            cell = _cell(line, f"{path}:{number}")
            if cells.setdefault((cell.table, cell.row, cell.column), cell) is not cell:
                raise UserError(
                    f"{path}:{number}: '{cell.row}', '{cell.column}' occurs twice in this table; keep one "
                    "of the two lines"
                )
    if not comments or not cells:
        raise UserError(
            f"{path}: expected a title, '# TITLE', and lines of {' '.join(_FIELDS)}, separated by tabs"
        )
    return Experiment(comments[0], tuple(comments[1:]), tuple(cells.values()))


def _cell(line: str, where: str) -> Cell:
    fields = line.split("\t")
    measure, *of = fields[-1].split()
    if len(fields) != len(_FIELDS) or not all(field.strip() for field in fields):
        raise UserError(
            f"{where}: {len(fields)} fields, expected {' '.join(_FIELDS)}, separated by tabs; correct the "
            "line"
        )
    if measure not in MEASURES and measure != NONE or len(of) not in _NUM_NAMES.get(measure, (0,)):
        raise UserError(f"{where}: '{fields[-1]}' is not a measure; known are {', '.join(_FORMS)}")
    table, row, column, published = fields[:4]
    return Cell(table, row, column, published, measure, tuple(of))


def page(experiment: Experiment, exp: Path) -> str:
    """The whole page. It depends only on the records below `exp`."""
    parts = [f"# {experiment.title}\n", HEAD, ""] + [f"* {note}" for note in experiment.notes]
    for table in dict.fromkeys(cell.table for cell in experiment.cells):
        parts += [f"\n## {table}\n", _table([cell for cell in experiment.cells if cell.table == table], exp)]
    systems = dict.fromkeys(
        name for cell in experiment.cells if cell.measure != NONE for name in cell.systems
    )
    found = records(place for name in systems for place in _places(exp / name))
    if found:
        parts += ["\n## Made with\n", made_with(found), "\n## Commands\n", commands(found)]
    return "\n".join(parts).rstrip("\n") + "\n"


def num_missing(experiment: Experiment, exp: Path) -> tuple[int, int]:
    """(number of missing counterparts, number of counterparts)"""
    ours = [cell.ours(exp) for cell in experiment.cells if cell.measure != NONE]
    return ours.count(MISSING), len(ours)


def _table(cells: list[Cell], exp: Path) -> str:
    """Rows and columns in the order of their first occurrence; next to each column, ours."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    places = {(cell.row, cell.column): cell for cell in cells}
    rows = []
    for row in dict.fromkeys(cell.row for cell in cells):
        pairs = [_pair(places.get((row, column)), exp) for column in columns]
        rows.append([row, *(text for pair in pairs for text in pair)])
    return markdown_table(["", *(name for column in columns for name in (column, _OURS))], rows)


def _pair(cell: Cell | None, exp: Path) -> tuple[str, str]:
    return (cell.published, cell.ours(exp)) if cell else ("", "")


def _places(model_dir: Path) -> list[Path]:
    """Directories with the records of a system and its scores."""
    return [model_dir, *sorted(path.parent for path in model_dir.glob(f"decode_*/scoring/{SUMMARY}"))]


def _wer(exp: Path, decoding: str, subset: str = "") -> float | None:
    return chosen_wer(exp / decoding, subset)


def _hours(exp: Path, system: str) -> float | None:
    done = read_done(exp / system)
    return done["seconds"] / 3600 if done else None


def _slow_down(exp: Path, system: str, other: str) -> float | None:
    ours, theirs = _hours(exp, system), _hours(exp, other)
    return ours / theirs if ours and theirs else None


def _speed_up(exp: Path, system: str, other: str) -> float | None:
    return _slow_down(exp, other, system)


def _loss(exp: Path, system: str) -> float | None:
    path = exp / system / "metrics.jsonl"
    if not read_done(exp / system) or not path.exists():
        return None
    found = [
        line["heldout_objective"]
        for line in map(parse_object, read_lines(path))
        if "heldout_objective" in line
    ]
    return -found[-1] if found else None


MEASURES: dict[str, Callable[..., float | None]] = {
    "wer": _wer,
    "hours": _hours,
    "speed-up": _speed_up,
    "slow-down": _slow_down,
    "loss": _loss,
}
_NUM_NAMES = {"wer": (1, 2), "hours": (1,), "speed-up": (2,), "slow-down": (2,), "loss": (1,)}
_FORMS = (
    "'wer SYSTEM/DECODING [SUBSET]'",
    "'hours SYSTEM'",
    "'speed-up SYSTEM OTHER'",
    "'slow-down SYSTEM OTHER'",
    "'loss SYSTEM'",
    "'none'",
)
