"""The table of trials, and the generated part of a page with their counts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from fault_ground import NUM_STAGES

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write

sys.path.append(str(Path(__file__).resolve().parents[1]))
from marked_page import replace_between  # noqa: E402

_BEGIN, _END = "<!-- figures, written by benchmarks/failures/faults.py -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Trial:
    """One fault and its consequences.

    stage, after_s   time of the fault: stage of the recipe, CPU seconds after its beginning
    words            arguments of run.sh
    what             description of the fault
    status, ended_s  exit status of the disturbed run, and the seconds from the fault to its end
    `told`           its last sentence
    problems         descriptions of incorrect behaviour; empty if all was correct
    seconds          duration of both runs
    commit           commit of the toolkit
    """

    seed: int
    kind: str
    stage: int
    after_s: float
    words: str
    what: str
    status: int
    ended_s: float
    message: str
    problems: list[str]
    seconds: float
    commit: str


def problems_of_report(said: str, status: int) -> list[str]:
    """Problems of the report of a disturbed run: no report, several, or a traceback."""
    found = ["a traceback was shown"] if "Traceback (most recent call last)" in said else []
    reports = len(re.findall(r"(?m)^run\.sh: (error: |stopped by )", said))
    killed_outright = status == -9
    wanted = 0 if status == 0 or killed_outright else 1
    return found + ([f"{reports} reports of failure with exit status {status}"] if reports != wanted else [])


def read_table(path: Path) -> dict[int, Trial]:
    """Read {seed: trial}; empty if there is no table yet."""
    if not Path(path).exists():
        return {}
    try:
        return {row["seed"]: Trial(**row) for row in json.loads(Path(path).read_text(encoding="utf-8"))}
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path}: not a table of trials; give another name") from None


def write_table(path: Path, trials: dict[int, Trial]) -> None:
    """Write one line per trial, sorted by seed."""
    with atomic_write(path) as f:
        f.write("[\n" + ",\n".join(json.dumps(asdict(trials[seed])) for seed in sorted(trials)) + "\n]\n")


def write_page(path: Path, trials: dict[int, Trial]) -> None:
    """Write the counts between their two marks in the page."""
    replace_between(path, _BEGIN, _END, "\n".join(figures(trials)))


def figures(trials: dict[int, Trial]) -> list[str]:
    """The lines of the table, with a row per kind of fault and a total, and of the number of trials that ran
    to the end of the recipe."""
    rows = [
        "| fault | trials | run failed with a report | run continued | correct after the same command |",
        "|---|---|---|---|---|",
    ]
    kinds = sorted({trial.kind for trial in trials.values()})
    rows += [_row(kind, [trial for trial in trials.values() if trial.kind == kind]) for kind in kinds]
    whole = _count(
        trial.words.endswith(f"--stop-stage {NUM_STAGES}") and not trial.problems for trial in trials.values()
    )
    last_line = (
        f"{whole} of these trials ran to the end of the recipe, with the word error rates of an "
        "undisturbed run."
    )
    return [*rows, _row("all", list(trials.values())), "", last_line]


def _row(name: str, trials: list[Trial]) -> str:
    failed = _count(trial.status != 0 for trial in trials)
    well = _count(not trial.problems for trial in trials)
    return f"| {name} | {len(trials)} | {failed} | {len(trials) - failed} | {well} |"


def _count(those: Iterable[bool]) -> int:
    return sum(map(int, those))
