"""Usage of a program and its growth: CPU seconds with all of its jobs, and the memory of the largest
process."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer

from scale_ground import ROOT
from scale_rows import Row

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write

_LITTLE_S, _LITTLE_MB, _LITTLE_SHARE = 0.15, 3.0, 0.05  # smaller differences to the first size are noise
_EXPONENTS = (0.8, 1.2)  # exponents in this range count as 1 in extrapolations
MAX_EXPONENT = 1.25
_LIMITED = """import os, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_ONE_THREAD = dict.fromkeys(_THREADS, "1")


@dataclass(frozen=True)
class Usage:
    """Usage of a program at one size; `amount` is in the unit of the row's ladder, `commit` that of the
    toolkit."""

    row: str
    size: int
    amount: float
    cpu_s: float
    memory_mb: float
    commit: str


def run(command: str, directory: Path, most_s: float, most_data_mb: float = 0.0) -> tuple[float, float]:
    """Run a program; (CPU seconds including all jobs, MB of the largest process).

    most_s        time limit of the program in seconds
    most_data_mb  limit of data for each of its processes (RLIMIT_DATA); 0: none

    Raises UserError with its last line if it fails.
    """
    program, *words = shlex.split(command)
    limit = ["-c", _LIMITED, str(int(most_data_mb * 1e6))] if most_data_mb else []
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, *limit, str(ROOT / program), *words],
            cwd=directory,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
        timer = Timer(most_s, os.killpg, (process.pid, signal.SIGTERM))
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    if process.returncode:
        raise UserError(f"{command}: failed: {lines[-1] if lines else f'status {process.returncode}'}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


@dataclass(frozen=True)
class Growth:
    """Growth of a row, from its usage at several sizes."""

    row: Row
    usages: list[Usage]

    @property
    def target(self) -> float:
        """The amount to which the limits apply."""
        return self.row.at or self.row.ladder.target

    def of(self, quantity: str) -> list[tuple[float, float]]:
        """(amount, `cpu_s` or `memory_mb`), sorted by amount."""
        return sorted((usage.amount, getattr(usage, quantity)) for usage in self.usages)

    def exponent(self, quantity: str) -> float | None:
        """Exponent of the amount in the growth beyond the first size, between the two largest sizes; None if
        there is no growth, or fewer than three sizes were measured."""
        points = self.of(quantity)
        if len(points) < 3:
            return None
        (_, start), (less, before), (more, last) = points[0], *points[-2:]
        little = _LITTLE_S if quantity == "cpu_s" else max(_LITTLE_MB, _LITTLE_SHARE * start)
        if last - start < little:
            return None
        return math.log((last - start) / max(before - start, little / 4)) / math.log(more / less)

    def at(self, quantity: str, amount: float) -> float | None:
        """The value at an amount, interpolated or extrapolated; None beyond the only measured size, or
        without measurements."""
        points = self.of(quantity)
        if not points or len(points) == 1 and amount > points[0][0]:
            return None
        start, (most, last) = points[0][1], points[-1]
        if amount <= most:
            return interpolated(points, amount)
        exponent = self.exponent(quantity)
        if exponent is None:
            return last if len(points) > 2 else start + (last - start) * amount / most
        low, high = _EXPONENTS
        return start + (last - start) * (amount / most) ** (1.0 if low < exponent < high else exponent)

    def broken(self) -> list[str]:
        """Quantities that exceed their limit at its amount, or that grow faster than linearly."""
        return [
            quantity
            for quantity in ("cpu_s", "memory_mb")
            if self._is_beyond(quantity) or self._is_fast(quantity)
        ]

    def _is_beyond(self, quantity: str) -> bool:
        limit, value = getattr(self.row, quantity), self.at(quantity, self.target)
        return limit is not None and value is not None and value > limit

    def _is_fast(self, quantity: str) -> bool:
        exponent = self.exponent(quantity)
        return exponent is not None and exponent > MAX_EXPONENT


def interpolated(points: list[tuple[float, float]], amount: float) -> float:
    """Linear interpolation between the two points around an amount."""
    for (less, low), (more, high) in zip(points, points[1:]):
        if amount <= more:
            return low + (high - low) * max(amount - less, 0.0) / (more - less)
    return points[-1][1]


def read_usages(path: Path) -> list[Usage]:
    """Read stored results; empty if there is no file yet. Raises UserError for another file."""
    try:
        return [Usage(**usage) for usage in read_object(path)["usages"]] if path.exists() else []
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path}: not a file of benchmarks/scaling/scale.py; give another name") from None


def write_usages(path: Path, machine: str, usages: list[Usage]) -> None:
    """Write one line per result."""
    lines = ",\n".join(f"    {json.dumps(asdict(usage))}" for usage in usages)
    with atomic_write(path) as file:
        file.write(f'{{\n  "machine": {json.dumps(machine)},\n  "usages": [\n{lines}\n  ]\n}}\n')
