"""What an amount of work costs: measured in finished recipes by benchmarks/measure_rates.py, kept in benchmarks/rates.json.

Each kind of work has straight lines, (at least, for each unit): core seconds by amount, bytes of the output by its size, MB of a job by
what it holds in memory (`pyasr.report.plan.works`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.foreign_json import read_object
from pyasr.base.output import atomic_write

Line = tuple[float, float]
_LEAST_WEIGHED = 1e-3  # times the greatest x: smaller ones have no more weight
_LEAST_RANGE = 3  # times the least x is the greatest, for what does not grow with x to be told


@dataclass(frozen=True)
class Rate:
    """Lines of a kind of work; `unit` is that of amounts, `num_measured` how many outputs were measured."""

    unit: str
    core_s: Line
    output_bytes: Line
    memory_mb: Line
    num_measured: int


@dataclass(frozen=True)
class Rates:
    """Rates by kind of work, the machine and the day of the measurement, and what is estimated of a GPU (`pyasr.report.plan.gpu`)."""

    machine: str
    measured: str
    of: dict[str, Rate]
    gpu: dict[str, object] = field(default_factory=dict)

    def nearest(self, key: str) -> str | None:
        """The kind of work whose rates hold for another one: its own, or that of the same program which is most alike; None: there is none.

        The words of a kind are a program and what sets kinds of it apart, the most important first. Of those that are as like, the dearest
        is taken.
        """
        words = key.replace(",", "").split()
        found = [name for name in self.of if name.split()[0] == words[0]]
        return key if key in self.of else max(found, key=lambda name: self._likeness(name, words), default=None)

    def _likeness(self, name: str, words: list[str]) -> tuple[int, int, float]:
        """First words in common; all words in common, those of one alone counted against them; what a unit costs."""
        own = name.replace(",", "").split()
        first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, words)))
        return first, 2 * len(set(own) & set(words)) - len(own), self.of[name].core_s[1]


def line_through(points: Iterable[tuple[float, float]]) -> Line:
    """(a, b) of the line a + b x with the least sum of squared errors, each divided by its x, neither being negative.

    Where x is much the same, the line begins at zero, since what does not grow with x cannot be told apart.
    """
    points = list(points)
    least = max(x for x, _ in points) * _LEAST_WEIGHED or 1.0
    weighed = [(1 / max(x, least), x, y) for x, y in points]
    num, sum_x, sum_y = sum(w for w, *_ in weighed), sum(w * x for w, x, _ in weighed), sum(w * y for w, _, y in weighed)
    sum_xx, sum_xy = sum(w * x * x for w, x, _ in weighed), sum(w * x * y for w, x, y in weighed)
    if not sum_x:
        return sum_y / num, 0.0
    if max(x for x, _ in points) < _LEAST_RANGE * min(x for x, _ in points):
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
    """Raises UserError for a file that is not there, or not one of benchmarks/measure_rates.py."""
    try:
        found = read_object(path)
        rates = {name: Rate(**{key: _without_lists(value) for key, value in rate.items()}) for name, rate in found["of"].items()}
        return Rates(found["machine"], found["measured"], rates, found.get("gpu", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a file of rates ({error}); make it with benchmarks/measure_rates.py") from None


def write_rates(path: Path, rates: Rates) -> None:
    """A line for each rate."""
    lines = [f"    {json.dumps(name)}: {json.dumps(asdict(rate))}" for name, rate in sorted(rates.of.items())]
    head = [f"  {json.dumps(name)}: {json.dumps(getattr(rates, name))},\n" for name in ("machine", "measured", "gpu")]
    with atomic_write(path) as file:
        file.write("{\n" + "".join(head) + '  "of": {\n' + ",\n".join(lines) + "\n  }\n}\n")


def _without_lists(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
