"""What an amount of work costs: measured in finished recipes by benchmarks/measure_rates.py, kept in benchmarks/rates.json.

Of each kind of work there are straight lines, (at least, for each unit): core seconds by amount, bytes of the output by hours of speech,
and MB of a job by the hours that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.foreign_json import read_object
from pyasr.base.output import atomic_write

Line = tuple[float, float]
_LEAST_RANGE = 5  # times the least x is the greatest, for what does not grow with x to be told


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
    """Rates by kind of work, the machine and the time of the measurement, and {name: number or source} of a GPU."""

    machine: str
    measured: str
    of: dict[str, Rate]
    gpu: dict[str, object] = field(default_factory=dict)


def line_through(points: Iterable[tuple[float, float]]) -> Line:
    """(a, b) of the line a + b x that is nearest in least squares, neither being negative; from zero where x is much the same."""
    points = list(points)
    num, sum_x, sum_y = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    sum_xx, sum_xy = sum(x * x for x, _ in points), sum(x * y for x, y in points)
    if max(x for x, _ in points) < _LEAST_RANGE * min(x for x, _ in points):
        return 0.0, sum_y / sum_x
    if not sum_x:
        return sum_y / num, 0.0
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
