"""Pictures of published experiments: losses and word errors by columns of a table, losses against time,
distances from the consensus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from comparison.claims import Cells
from comparison.experiments import Table, by_table, place_of
from comparison.kept_runs import KeptRun
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines
from pyasr.report.svg import Series, line_plot

_MEASURES = {"loss": "held-out loss", "wer": "test WER %"}


def experiment_pictures(cells: Cells) -> dict[str, str]:
    """SVGs by name: WORK_TABLE_loss and _wer where columns are numbers, _time and _drift for the column that
    most rows have."""
    made: dict[str, str] = {}
    for name, table in by_table(cells, cells).items():
        column = Counter(column for _, column in table).most_common(1)[0][0]
        message = {
            row: runs[0] for (row, own), runs in table.items() if own == column and len(runs[0].curve) > 2
        }
        pictures = {measure: _by_column(name, table, measure) for measure in _MEASURES}
        courses, drifts = ({row: line(run) for row, run in message.items()} for line in (_course, _drift))
        pictures["time"] = _plot(courses, f"{name}/*/{column}", "hours", "held-out loss")
        pictures["drift"] = _plot(drifts, f"{name}/*/{column}", "epochs", "distance from the consensus")
        made |= {f"{name.replace('/', '_')}_{kind}": picture for kind, picture in pictures.items() if picture}
    return made


def overview(cells: Cells, curves: Mapping[str, str]) -> str:
    """An SVG of the held-out loss against virtual time; `curves`: {label: cell}. Each curve is the first seed
    of its cell; cells without a training have none. Empty if there is no curve."""
    runs = {label: next(iter(cells[cell].values())) for label, cell in curves.items() if cell in cells}
    courses = {label: _course(run) for label, run in runs.items()}
    return _plot(courses, "Loss against time", "hours", _MEASURES["loss"])


def read_curves(path: Path) -> dict[str, str]:
    """{label: cell} of a file of tab-separated lines LABEL CELL. Raises UserError, naming the line, for other
    lines."""
    curves = {}
    for number, line in enumerate(read_lines(path), 1):
        label, _, cell = line.partition("\t")
        if not label or cell.count("/") != 3 or "\t" in cell:
            raise UserError(f"{path}:{number}: '{line}': expected LABEL, a tab and WORK/TABLE/ROW/COLUMN")
        curves[label] = cell
    return curves


def _plot(series: Series, title: str, x_label: str, y_label: str, log2: bool = False) -> str:
    """A picture of the lines with several points; empty if there is none."""
    lines = {row: line for row, line in series.items() if len(line) > 1}
    return line_plot(lines, title, x_label, y_label, log2) if lines else ""


def _course(run: KeptRun) -> list[tuple[float, float]]:
    """(virtual hours, loss) after each epoch."""
    return [(seconds / 3600, loss) for seconds, loss, _ in run.curve[1:] if math.isfinite(loss)]


def _drift(run: KeptRun) -> list[tuple[float, float]]:
    """(epochs, relative distance of learners from the consensus)."""
    return list(enumerate(run.distances, 1))


def _by_column(name: str, table: Table, measure: str) -> str:
    """A picture with a line for each row: means over seeds."""
    lines: Series = {}
    for (row, column), runs in table.items():
        numbers = [number for run in runs if (number := getattr(run, measure)) is not None]
        if numbers and 0 < place_of(column)[0] < math.inf:
            lines.setdefault(row, []).append((place_of(column)[0], mean(numbers)))
    title = name.partition("/")[2]
    return _plot(
        {row: sorted(line) for row, line in lines.items()}, name, title, _MEASURES[measure], log2=True
    )
