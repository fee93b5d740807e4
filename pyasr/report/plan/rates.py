"""Rates: the cost of an amount of work, measured in finished recipes by benchmarks/measure_rates.py and
stored in benchmarks/rates.json.

Each kind of work has straight lines (offset, slope): core seconds by amount, bytes of the output by its size,
MB of a job by the size of its data in memory (`pyasr.report.plan.works`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write

Line = tuple[float, float]
_MIN_WEIGHED = 1e-3  # relative to the maximum x: smaller x get no more weight
_MIN_RANGE = 3  # minimum ratio of the largest to the smallest x for which an offset is estimated


@dataclass(frozen=True)
class Rate:
    """Lines of a kind of work; `unit`: unit of amounts; `num_measured`: number of measured outputs."""

    unit: str
    core_s: Line
    output_bytes: Line
    memory_mb: Line
    num_measured: int


@dataclass(frozen=True)
class Rates:
    """Rates by kind of work, the machine and day of the measurement, and estimates for a GPU
    (`pyasr.report.plan.gpu`)."""

    machine: str
    measured: str
    of: dict[str, Rate]
    gpu: dict[str, object] = field(default_factory=dict)

    def nearest(self, key: str) -> str | None:
        """The kind of work whose rates are used for `key`: itself, else the most similar kind of the same
        program; None if there is none.

        The words of a kind are a program and its distinguishing properties, the most important first. Among
        equally similar kinds, the most expensive is used.
        """
        words = key.replace(",", "").split()
        found = [name for name in self.of if name.split()[0] == words[0]]
        return (
            key if key in self.of else max(found, key=lambda name: self._likeness(name, words), default=None)
        )

    def _likeness(self, name: str, words: list[str]) -> tuple[int, int, float]:
        """(number of common first words, number of common words minus other words, cost of a unit)."""
        own = name.replace(",", "").split()
        first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, words)))
        return first, 2 * len(set(own) & set(words)) - len(own), self.of[name].core_s[1]


def line_through(points: Iterable[tuple[float, float]]) -> Line:
    """(a, b) of the line a + b x with the minimal sum of squared errors relative to x, with a and b not
    negative.

    If all x are similar, the line begins at zero, because the offset cannot be estimated.
    """
    points = list(points)
    least = max(x for x, _ in points) * _MIN_WEIGHED or 1.0
    weighed = [(1 / max(x, least), x, y) for x, y in points]
    num = sum(w for w, *_ in weighed)
    sum_x = sum(w * x for w, x, _ in weighed)
    sum_y = sum(w * y for w, _, y in weighed)
    sum_xx, sum_xy = sum(w * x * x for w, x, _ in weighed), sum(w * x * y for w, x, y in weighed)
    if not sum_x:
        return sum_y / num, 0.0
    if max(x for x, _ in points) < _MIN_RANGE * min(x for x, _ in points):
        return 0.0, sum_xy / sum_xx
    slope = (num * sum_xy - sum_x * sum_y) / (num * sum_xx - sum_x**2)
    begin = (sum_y - slope * sum_x) / num
    if slope < 0:
        return (sum_y / num, 0.0)
    return (begin, slope) if begin >= 0 else (0.0, sum_xy / sum_xx)


def at(line: Line, x: float) -> float:
    """The value of a line."""
    return line[0] + line[1] * x


def read_rates(path: Path) -> Rates:
    """Read a file of rates. Raises UserError if missing or not written by benchmarks/measure_rates.py."""
    try:
        found = read_object(path)
        rates = {name: _rate(values) for name, values in found["of"].items()}
        return Rates(found["machine"], found["measured"], rates, found.get("gpu", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not a file of rates ({error}); write it with benchmarks/measure_rates.py"
        ) from None


def write_rates(path: Path, rates: Rates) -> None:
    """Write a file of rates, a line per rate."""
    lines = [f"    {json.dumps(name)}: {json.dumps(asdict(rate))}" for name, rate in sorted(rates.of.items())]
    head = [
        f"  {json.dumps(name)}: {json.dumps(getattr(rates, name))},\n"
        for name in ("machine", "measured", "gpu")
    ]
    with atomic_write(path) as file:
        file.write("{\n" + "".join(head) + '  "of": {\n' + ",\n".join(lines) + "\n  }\n}\n")


def _rate(values: dict) -> Rate:
    pairs: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Rate(**pairs)
