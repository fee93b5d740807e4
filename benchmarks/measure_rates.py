#!/usr/bin/env python3
"""Measure what programs take in finished recipes, for plans (run.sh --plan true): core seconds, bytes and memory by amount of work.

Each output's done-file tells the command, the seconds and the files; the jobs' status files tell the memory, and
`pyasr.report.plan.works` the amount of work. Core seconds are seconds times jobs or ranks. Run the recipes on an otherwise idle machine,
of several sizes, so that what each run takes at least is told from what grows.

Example:
    benchmarks/measure_rates.py --out benchmarks/rates.json egs/toy/s5 egs/amazon_queen/s5
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import argument, option
from pyasr.base.step import run_step
from pyasr.data.datadir import DataDir
from pyasr.report.plan.calls import Call, from_command
from pyasr.report.plan.corpus import Corpus, Speech
from pyasr.report.plan.rates import Rate, Rates, line_through, write_rates
from pyasr.report.plan.works import WORKS, key_of


@dataclass(frozen=True)
class MeasureRates:
    recipes: tuple[Path, ...] = argument("directories of finished recipes", many=True)
    out: Path = option(Path("rates.json"), "file of rates to write")
    memory_of: Path | None = option(None, "a finished recipe of another size of which the memory alone is taken")
    gpu_gflop_per_s: float = option(0.0, "what a GPU reaches in the training of networks; 0: unknown", minimum=0.0)
    gpu_source: str = option("", "where that number comes from")


@dataclass(frozen=True)
class Sample:
    """An output: its amount of work, its hours of speech, core seconds, bytes, MB and hours of each job."""

    amount: float
    size: float
    core_s: float
    num_bytes: float
    memory_mb: float
    hours_of_job: float


def done_files(recipe: Path) -> list[tuple[Path, dict]]:
    """Done-files below a recipe in the order in which they were made, with their content."""
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in recipe.rglob(".done.json")]
    return sorted(found, key=lambda pair: pair[1]["ended"])


def samples_of(recipe: Path) -> Iterator[tuple[str, Sample]]:
    """(kind of work, sample) of all outputs whose work is declared."""
    corpus = Corpus(lambda path: speech_of(recipe / path))
    for path, done in done_files(recipe):
        call = from_command(done["command"], recipe)
        if call.name in WORKS:
            yield key_of(call), sample(call, path, done, corpus)
        corpus.note(call)


def by_kind(recipes: Iterable[Path]) -> dict[str, list[Sample]]:
    """{kind of work: samples}"""
    samples = defaultdict(list)
    for recipe in recipes:
        for name, found in samples_of(recipe):
            samples[name].append(found)
    return samples


def speech_of(path: Path) -> Speech | None:
    if not (path / "utt2spk").exists():
        return None
    seconds = DataDir(path).audio_durations
    return Speech(sum(seconds.values()) / 3600, len(seconds))


def sample(call: Call, path: Path, done: dict, corpus: Corpus) -> Sample:
    work = WORKS[call.name]
    size, workers = work.size(call, corpus), work.num_workers(call)
    statuses = [json.loads(file.read_text(encoding="utf-8")) for file in (path.parent / "log").glob("*.status")]
    memory = max((status.get("peak_memory_mb") or 0.0 for status in statuses), default=0.0)
    num_bytes = sum(size for size, *_ in done["files"].values())
    return Sample(work.amount(call, corpus), size, done["seconds"] * workers, num_bytes, memory, size / workers)


def rate_of(name: str, samples: list[Sample], of_memory: list[Sample]) -> Rate:
    work = WORKS[name.split()[0]]
    with_memory = [(one.hours_of_job, one.memory_mb) for one in samples + of_memory if one.memory_mb]
    most = max((memory for _, memory in with_memory), default=0.0)
    return Rate(
        work.unit,
        _rounded(line_through((one.amount, one.core_s) for one in samples)),
        _rounded(line_through((one.size, one.num_bytes) for one in samples)),
        _rounded(line_through(with_memory) if work.holds and with_memory else (most, 0.0)),
        len(samples),
    )


def _rounded(line: tuple[float, float]) -> tuple[float, float]:
    return float(f"{line[0]:.4g}"), float(f"{line[1]:.4g}")


def main(options: MeasureRates) -> None:
    samples, of_memory = by_kind(options.recipes), by_kind([options.memory_of] if options.memory_of else [])
    machines = {done["machine"]: done["ended"] for recipe in options.recipes for _, done in done_files(recipe)}
    if not samples:
        raise UserError(f"{options.recipes[0]}: no output of a program whose work is declared; run the recipe first")
    if len(machines) > 1:
        raise UserError(f"the recipes were run on several machines ({'; '.join(machines)}); give those of one")
    machine, ended = next(iter(machines.items()))
    gpu = {"training_gflop_per_s": options.gpu_gflop_per_s, "source": options.gpu_source} if options.gpu_gflop_per_s else {}
    rates = {name: rate_of(name, found, of_memory[name]) for name, found in samples.items()}
    write_rates(options.out, Rates(machine, ended[:10], rates, gpu))
    log.info(f"{options.out}: {len(samples)} kinds of work, {sum(map(len, samples.values()))} outputs, {machine}")


if __name__ == "__main__":
    run_step(MeasureRates, main, __doc__)
