"""Sections of a page on published experiments in their own settings: claims with our verdicts, tables and pictures of all trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from pyasr.report.claims import LEARNS, NOT_TRIED, Cells, Claim, measure
from pyasr.report.kept_runs import KeptRun, read_kept
from pyasr.report.parallel_tables import section
from pyasr.report.text_table import markdown_table

_HOW = """\
A claim is *confirmed* or *refuted* where our trainings with the same seeds differ by more than chance: by Student's interval (95 %) of
the difference of logarithms with three seeds or more, else by more than 1 % (losses) or 3 % (WERs). It is *not shown* where they do not,
and *not tried* where trainings are missing. Numbers are means over seeds, with the least and the greatest where they differ. The tables
below have the other cells."""
_TABLES: dict[str, tuple[Callable[[KeptRun], float | None], str]] = {
    "Held-out loss": (lambda run: run.loss, ".3f"),
    "Loss of the model of one learner": (lambda run: run.learner_loss, ".3f"),
    "Test WER %": (lambda run: run.wer, ".1f"),
    "Test WER % of the model of one learner": (lambda run: run.learner_wer, ".1f"),
    "Virtual time of an epoch, s": (lambda run: run.epoch_s, ".0f"),
}
Table = dict[tuple[str, str], list[KeptRun]]  # by row and column
_FORMS = {"wer": ".1f", "learner-wer": ".1f", "epoch": ".0f"}


@dataclass(frozen=True)
class Experiments:
    """Claims, and trainings by cell and seed."""

    claims: list[Claim]
    cells: Cells

    @property
    def runs(self) -> list[KeptRun]:
        return [run for seeds in self.cells.values() for run in seeds.values()]


NO_EXPERIMENTS = Experiments([], {})


def kept_cells(directory: Path) -> Cells:
    """The trainings of all files WORK.jsonl of `directory`, as WORK/TABLE/ROW/COLUMN and then by seed."""
    cells: dict[str, dict[str, KeptRun]] = {}
    for path in sorted(Path(directory).glob("*.jsonl")):
        for run in read_kept(path):
            cells.setdefault(f"{path.stem}/{run.cell}", {})[run.name.rpartition("/")[2]] = run
    return cells


def by_table(cells: Cells) -> dict[str, Table]:
    """The trainings of each WORK/TABLE."""
    tables: dict[str, Table] = {}
    for name, runs in cells.items():
        table, row, column = name.rsplit("/", 2)
        tables.setdefault(table, {})[row, column] = list(runs.values())
    return tables


def sections(found: Experiments) -> list[str]:
    """The claims, then a section for each table; nothing where there are no claims."""
    if not found.claims:
        return []
    tables = [_table_section(name, table) for name, table in by_table(found.cells).items()]
    return [section("Claims", _HOW, _claims_table(found)), *tables]


def _claims_table(found: Experiments) -> str:
    rows = [[claim.sentence, claim.source, claim.published, _ours(claim, found.cells), _verdict(claim, found.cells), _scripts(claim)]
            for claim in found.claims]
    return markdown_table(["claim", "source", "published", "ours", "verdict", "made by"], rows)


def _verdict(claim: Claim, cells: Cells) -> str:
    verdict = claim.verdict(cells)
    why = next((part.why for part in claim.parts if part.why), None)
    return f"{verdict}: {why}" if verdict == NOT_TRIED and why else f"**{verdict}**"


def _scripts(claim: Claim) -> str:
    works = dict.fromkeys(name.partition("/")[0] for name in claim.cells)
    return ", ".join(f"`local/experiments/{work}.sh`" for work in works) or "-"


def _ours(claim: Claim, cells: Cells) -> str:
    """The numbers that the test looks at, each cell once for a measure, with the seeds; verdicts on networks where it looks at these."""
    told: dict[str, None] = {}
    for part in claim.parts:
        for name in part.cells:
            if name in cells:
                seeds = f"{len(cells[name])} seed{'s' * (len(cells[name]) > 1)}"
                told.setdefault(f"{name.partition('/')[2]} {_number(part.measure, cells[name].values())}, {seeds}")
    return "; ".join(told) or "-"


def _number(name: str | None, runs: Iterable[KeptRun]) -> str:
    """Of a measure; without one, the verdict on the network and its loss."""
    runs = list(runs)
    if name is None:
        return f"{_verdicts(runs)} ({spread([run.loss for run in runs], '.3f')})"
    return spread([measure(name)(run) for run in runs], ".0f" if name.startswith("to-") else _FORMS.get(name, ".3f"))


def _verdicts(runs: list[KeptRun]) -> str:
    return " / ".join(dict.fromkeys(run.verdict for run in runs))


def spread(values: list[float | None], form: str) -> str:
    """Mean, and least to greatest of several; `-` without numbers."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    low, middle, high = (format(value, form) for value in (min(numbers), mean(numbers), max(numbers)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _table_section(name: str, table: Table) -> str:
    every = [run for runs in table.values() for run in runs]
    parts = [f"**{title}**\n\n{_pivot(table, lambda runs: spread([value(run) for run in runs], form))}"
             for title, (value, form) in _TABLES.items() if any(value(run) is not None for run in every)]  # fmt: skip
    if any(run.verdict != LEARNS for run in every):
        parts.insert(0, f"**What became of the networks**\n\n{_pivot(table, _verdicts)}")
    return section(name.replace("/", ": "), *parts)


def _pivot(table: Table, value: Callable[[list[KeptRun]], str]) -> str:
    columns = sorted({column for _, column in table}, key=place_of)
    body = [[row, *(value(table.get((row, column), [])) or "-" for column in columns)] for row in dict.fromkeys(row for row, _ in table)]
    return markdown_table(["", *columns], body)


def place_of(column: str) -> tuple[float, str]:
    """A number, or a fraction A-B, infinity for a word; and the name itself."""
    over, _, under = column.partition("-")
    try:
        return float(over) / float(under or 1), column
    except (ValueError, ZeroDivisionError):
        return float("inf"), column
