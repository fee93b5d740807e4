"""Test published claims against our trainings.

Each line of a file of claims has four fields, `CLAIM SOURCE PUBLISHED TEST`, separated by tabs: a sentence,
the publication, the published numbers, and a test of our trainings. A test consists of parts of these forms,
separated by ` and `:

    learns CELL                 the model is better than the priors with every seed
    diverges CELL               the model is better than the priors with no seed
    MEASURE CELL < [X] CELL     the first cell has less than X times the second; X is 1 by default
    MEASURE CELL = CELL         the two cells differ by at most 1.5 %, the noise of published errors
    none WHY                    the claim has not been tested

A CELL is WORK/TABLE/ROW/COLUMN: trainings with several seeds in WORK.jsonl. A MEASURE is one of MEASURES or a
virtual time. `to-A` is the time until A % of the held-out frames are right. `to-A%` is the time until the
share of right frames is A % of the final share of the second cell. Lines that begin with # are comments.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from comparison.kept_runs import KeptRun
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines

# Relative noise of an error that is published without an interval: about one standard error of a WER of 18 %
# for 20,000 words, which is 0.3.
PUBLISHED_NOISE = 0.015
# Two equally good trainings with the same seed differ by less than this, relatively, in 19 of 20 cases. These
# are residual standard deviations of 0.34 and 1.1 %, times 1.96 sqrt 2, from 12 systems of
# egs/amazon_queen/s5/run_averaging.sh with 3 seeds each.
LOSS_NOISE, WER_NOISE = 0.01, 0.03
CONFIRMED, REFUTED, NOT_SHOWN, NOT_TRIED = "confirmed", "refuted", "not shown", "not tried"
Cells = Mapping[str, Mapping[str, KeptRun]]  # by WORK/TABLE/ROW/COLUMN, then by seed
MEASURES: dict[str, Callable[[KeptRun], float | None]] = {
    "loss": lambda run: math.inf if run.loss is None else run.loss,
    "learner-loss": lambda run: run.learner_loss,
    "wer": lambda run: 100.0 if run.loss is None else run.wer,
    "learner-wer": lambda run: run.learner_wer,
    "epoch": lambda run: run.epoch_s,
}
_NOISE = {"wer": WER_NOISE, "learner-wer": WER_NOISE, "epoch": 0.0}  # LOSS_NOISE for other measures
_TO = re.compile(r"to-(\d+\.?\d*)(%?)")
# 97.5 % of Student's t, by number of seeds
_STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
LEARNS = "learns"
_FORM = re.compile(
    r"(?P<state>learns|diverges) (?P<cell>\S+)|none (?P<why>.+)|"
    r"(?P<measure>\S+) (?P<a>\S+) (?P<sign>[<=])(?: (?P<factor>\d+\.?\d*))? (?P<b>\S+)"
)


def measured(name: str, a: KeptRun, b: KeptRun) -> tuple[float | None, float | None]:
    """A MEASURE of the trainings of two cells with the same seed; None if it is unknown."""
    timed = _TO.fullmatch(name)
    if not timed:
        return MEASURES[name](a), MEASURES[name](b)
    level = float(timed[1])
    if timed[2]:
        if b.accuracy is None:
            return None, None
        level *= b.accuracy / 100
    return seconds_to(level, a), seconds_to(level, b)


def seconds_to(accuracy: float, run: KeptRun) -> float:
    """Virtual seconds until `accuracy` per cent of the held-out frames are right, interpolated within epochs;
    infinite if never."""
    for (before, _, low), (after, _, high) in itertools.pairwise(run.curve):
        if low < accuracy <= high:
            return before + (after - before) * (accuracy - low) / (high - low)
    return math.inf


@dataclass(frozen=True)
class ClaimPart:
    """One part of a test; fields that its form lacks are empty."""

    state: str
    cell: str
    why: str
    measure: str
    a: str
    sign: str
    factor: str
    b: str

    @property
    def cells(self) -> list[str]:
        return [name for name in (self.cell, self.a, self.b) if name]

    def verdict(self, cells: Cells) -> str:
        """The verdict of the trainings on this part."""
        if self.state:
            return self._of_state(cells[self.cell]) if self.cell in cells else NOT_TRIED
        pairs = self.pairs(cells)
        return (
            self._of_interval(*self.interval(pairs, math.log(float(self.factor or 1))))
            if pairs
            else NOT_TRIED
        )

    def pairs(self, cells: Cells) -> list[tuple[float, float]]:
        """(number of the first cell, number of the second cell) for each common seed; empty if one of the
        numbers is missing."""
        if not self.measure or not all(name in cells for name in self.cells):
            return []
        a, b = cells[self.a], cells[self.b]
        found = [measured(self.measure, a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]
        known = [(x, y) for x, y in found if x is not None and y is not None]
        return known if len(known) == len(found) else []

    def interval(self, pairs: list[tuple[float, float]], offset: float = 0.0) -> tuple[float, float]:
        """`difference` of the pairs, with the noise of the measure."""
        return difference(pairs, _NOISE.get(self.measure, LOSS_NOISE), offset)

    def _of_state(self, runs: Mapping[str, KeptRun]) -> str:
        as_claimed = {(run.verdict == LEARNS) == (self.state == LEARNS) for run in runs.values()}
        return NOT_SHOWN if len(as_claimed) == 2 else CONFIRMED if as_claimed == {True} else REFUTED

    def _of_interval(self, low: float, high: float) -> str:
        if self.sign == "=":
            return _within(low, high, PUBLISHED_NOISE)
        return CONFIRMED if high < 0 else REFUTED if low > 0 else NOT_SHOWN


def difference(pairs: list[tuple[float, float]], noise: float, offset: float = 0.0) -> tuple[float, float]:
    """A 95 % interval of log a - log b - offset, from pairs (a, b) with the same seed. With at least three
    pairs, it is Student's interval, otherwise the mean +- `noise`. Infinite numbers are larger than all
    others, and equal to each other."""
    logs = [0.0 if a == b == math.inf else math.log(a) - math.log(b) - offset for a, b in pairs]
    middle = mean(logs)
    if math.isinf(middle) or math.isnan(middle):
        return middle, middle
    half = (
        _STUDENT[min(len(logs), max(_STUDENT))] * stdev(logs) / math.sqrt(len(logs))
        if len(logs) >= min(_STUDENT)
        else noise
    )
    return middle - half, middle + half


def _within(low: float, high: float, tolerance: float) -> str:
    if low >= -tolerance and high <= tolerance:
        return CONFIRMED
    return REFUTED if low > tolerance or high < -tolerance else NOT_SHOWN


@dataclass(frozen=True)
class Claim:
    """A published claim and its test."""

    sentence: str
    source: str
    published: str
    parts: tuple[ClaimPart, ...]

    @property
    def cells(self) -> list[str]:
        """The distinct cells of its test."""
        return list(dict.fromkeys(name for part in self.parts for name in part.cells))

    def verdict(self, cells: Cells) -> str:
        """The verdict of the worst part, from NOT_TRIED over REFUTED and NOT_SHOWN to CONFIRMED."""
        found = {part.verdict(cells) for part in self.parts}
        return next((verdict for verdict in (NOT_TRIED, REFUTED, NOT_SHOWN) if verdict in found), CONFIRMED)


def read_claims(path: Path) -> list[Claim]:
    """Read the file `path`. Raises UserError with file and line for an invalid line."""
    lines = [(f"{path}:{number}", line) for number, line in enumerate(read_lines(path), 1)]
    return [_claim(line, where) for where, line in lines if line.strip() and not line.startswith("#")]


def _claim(line: str, where: str) -> Claim:
    fields = line.split("\t")
    if len(fields) != 4 or not all(field.strip() for field in fields):
        raise UserError(
            f"{where}: {len(fields)} fields, expected CLAIM SOURCE PUBLISHED TEST, separated by tabs; "
            "correct the line"
        )
    claim, source, published, test = fields
    return Claim(claim, source, published, tuple(_part(text, where) for text in test.split(" and ")))


def _part(text: str, where: str) -> ClaimPart:
    found = _FORM.fullmatch(text)
    if (
        not found
        or found["measure"]
        and not _is_measure(found["measure"])
        or float(found["factor"] or 1) == 0
    ):
        raise UserError(
            f"{where}: '{text}' is not a test: 'learns CELL', 'diverges CELL', 'MEASURE CELL < CELL', "
            f"'MEASURE CELL = CELL' or 'none WHY', where MEASURE is one of {', '.join(MEASURES)}, to-A, "
            "to-A%"
        )
    return ClaimPart(**found.groupdict(""))


def _is_measure(name: str) -> bool:
    return name in MEASURES or _TO.fullmatch(name) is not None
