#!/usr/bin/env python3
"""CPU seconds and peak memory of all programs that read a whole corpus, by the size of the corpus, and their
growth.

Corpora of 31 k, 125 k, 500 k and 2 M utterances, n-gram models and dictionaries are created in --scratch
(`scale_corpus.py`, `scale_language.py`). Each program of `scale_rows.py`
reads them at increasing sizes. Results are stored in --out, a row per program and size, and are not measured
again. Beyond the largest measured size, numbers are extrapolated and marked x. A program is skipped at a size
for which it is expected to take more than --most-s or than the free memory. A mark shows exceeded limits and
growth faster than linear. With --page, the tables of docs/running/scale.md are written.

CPU seconds are those of a program with all of its jobs, megabytes those of its largest process. The machine
may run other work. The sizes take about an hour on two idle cores (the two smaller ones a quarter of it) and
at most 6 GB of disk.

Examples:
    benchmarks/scaling/scale.py --sizes "1 2"
    benchmarks/scaling/scale.py --rows "validate_data_dir split_data_dir" --again true
    benchmarks/scaling/scale.py --sizes "" --page docs/running/scale.md
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scale_ground import ROOT, Ground, Names
from scale_page import growth_table, write_page
from scale_rows import ROWS, Row
from scale_usage import Growth, Usage, read_usages, run, write_usages

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.base.host.host_memory import free_bytes
from pyasr.base.outputs.run_record import commit, machine

_SHARE_OF_MEMORY = 0.7  # maximum expected memory of a program, as a fraction of the free memory
_PATIENCE = 20  # time limit of a program in multiples of --most-s, for a busy machine
_NAMES = [row.name for row in ROWS]


@dataclass(frozen=True)
class Benchmark:
    out: Path = option(ROOT / "benchmarks/scaling/scale.json", "file of results, to which new ones are added")
    sizes: str = option(
        "1 2 3 4", "indices of sizes in the ladders of benchmarks/scaling/scale_rows.py, in addition to 0"
    )
    rows: str = option("", "rows to measure, by their first word, separated by spaces; empty: all")
    again: bool = option(False, "measure rows again that have results")
    most_s: float = option(120.0, "skip programs that are expected to take more CPU seconds", minimum=1.0)
    warm_up: bool = option(
        True, "run a program twice at its smallest size, because the first run compiles kernels"
    )
    scratch: str = option("", "directory in which corpora are kept; empty: a temporary directory")
    page: Path | None = option(None, "page whose tables are updated, such as docs/running/scale.md")


def _place(usage: Usage) -> tuple[int, int]:
    """Sort key of a result in the file."""
    return _NAMES.index(usage.row), usage.size


class Measurements:
    """Stored results, and new ones that are added."""

    def __init__(self, options: Benchmark, ground: Ground, work: Path):
        self.options, self.ground, self.work = options, ground, work
        kept = [usage for usage in read_usages(options.out) if usage.row in _NAMES]
        self.usages = {(usage.row, usage.size): usage for usage in kept}
        self.failed: list[str] = []

    def growth(self, row: Row) -> Growth:
        """Growth of a row according to its results."""
        return Growth(row, [usage for usage in self.usages.values() if usage.row == row.name])

    def add(self, row: Row, size: int) -> None:
        """Measure a row at a size, unless it has a result or is expected to take too much."""
        if (row.name, size) in self.usages and not self.options.again:
            return
        amount = self.amount(row, size)
        if expected := self._too_much(row, size, amount):
            log.info(f"{row.name} at {size}: skipped, expected to take {expected}")
            return
        try:
            cpu_s, memory_mb = self._measured(row, size)
        except UserError as error:
            self.failed.append(row.name)
            log.warning(f"{row.name} at {size}: {error}")
            return
        measured = Usage(row.name, size, amount, round(cpu_s, 2), round(memory_mb, 1), commit())
        self.usages[row.name, size] = measured
        write_usages(self.options.out, machine(), sorted(self.usages.values(), key=_place))
        log.info(f"{row.name} at {size}: {cpu_s:.1f} CPU s, {memory_mb:.0f} MB")

    def amount(self, row: Row, size: int) -> float:
        """The size in the unit of the row's ladder."""
        return self.ground.frames(row.ladder.kind, size) if row.ladder.unit == "frames" else size

    def _too_much(self, row: Row, size: int, amount: float) -> str:
        """The expected cost of a row if it exceeds the limits; else ''."""
        growth = self.growth(row)
        cpu_s, memory_mb = growth.at("cpu_s", amount), growth.at("memory_mb", amount)
        if cpu_s is None or size == row.ladder.sizes[0]:
            return ""
        room = _SHARE_OF_MEMORY * (free_bytes() or 0) / 1e6
        if cpu_s > self.options.most_s:
            return f"x {cpu_s:.0f} CPU s"
        return f"x {memory_mb:.0f} MB" if memory_mb > room else ""

    def _measured(self, row: Row, size: int) -> tuple[float, float]:
        patience = _PATIENCE * self.options.most_s
        if self.options.warm_up and size == row.ladder.sizes[0]:
            with self.command(row, size) as command:
                run(command, self.work, patience)
        with self.command(row, size) as command:
            if row.again:
                run(command, self.work, patience)
            return run(command, self.work, patience)

    @contextmanager
    def command(self, row: Row, size: int) -> Iterator[str]:
        """The command of a row with its input directories; the content of `work` is removed afterwards."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        try:
            yield row.command.format_map(Names(self.ground, row.ladder.kind, size, self.work))
        finally:
            shutil.rmtree(self.work, ignore_errors=True)


def chosen(options: Benchmark) -> list[Row]:
    """The rows to measure. Raises UserError for an unknown name."""
    names = options.rows.split()
    unknown = set(names) - {row.name.split(",")[0].split()[0] for row in ROWS}
    if unknown:
        raise UserError(
            f"--rows: '{min(unknown)}' is not a row; see benchmarks/scaling/scale_rows.py for their names"
        )
    return [row for row in ROWS if not names or row.name.split(",")[0].split()[0] in names]


def places(options: Benchmark) -> list[int]:
    """The indices of the sizes in increasing order. Raises UserError for words that are not numbers."""
    words = options.sizes.split()
    if not all(word.isdecimal() for word in words):
        raise UserError(f"--sizes '{options.sizes}': not a list of indices; give numbers, such as '1 2'")
    return sorted({0, *map(int, words)}) if words else []


@contextmanager
def scratch_of(options: Benchmark) -> Iterator[Path]:
    """--scratch, or a directory that is removed at the end."""
    if options.scratch:
        yield Path(options.scratch).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="pyasr-scale-") as name:
        yield Path(name)


def main(options: Benchmark) -> None:
    with scratch_of(options) as scratch:
        ground = Ground(scratch)
        measurements = Measurements(options, ground, scratch / "work")
        for place in places(options):
            for row in chosen(options):
                if place < len(row.ladder.sizes):
                    measurements.add(row, row.ladder.sizes[place])
            ground.forget_sized()
    growths = [measurements.growth(row) for row in ROWS]
    print(growth_table(growths))
    if options.page:
        write_page(options.page, growths, machine())
    if measurements.failed:
        raise UserError(f"failed: {', '.join(measurements.failed)}; see the warnings above")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
