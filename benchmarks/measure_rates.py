#!/usr/bin/env python3
"""Measure what programs take in finished recipes, for plans (run.sh --plan true): core seconds, bytes and memory by amount of work.

Each output's done-file tells the command, the seconds and the files; the jobs' status files tell the memory, and
`pyasr.report.plan.works` the amount of work. Core seconds are seconds times jobs or ranks. Use an otherwise idle machine, and recipes of
several sizes, so that what each run takes at least is told from what grows.

With `--run true`, run.sh of egs/amazon_queen/s5 is run first, unless it is complete, and small runs of the programs that it does not call
(benchmarks/small_runs.py): all that plans need, in about an hour on two cores.

Examples:
    benchmarks/measure_rates.py --run true --out benchmarks/rates.json egs/amazon_queen/s5
    benchmarks/measure_rates.py --out benchmarks/rates.json egs/toy/s5 egs/amazon_queen/s5
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from small_runs import Usage, run_all, usage_of

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.report.plan.disk import disk_below
from pyasr.report.plan.estimate import network_core_s
from pyasr.report.plan.planned_calls import Call, from_command
from pyasr.report.plan.planned_data import Corpus
from pyasr.report.plan.rates import Rate, Rates, line_through, write_rates
from pyasr.report.plan.works import WORKS, key_of, nothing

GPU = {  # 1,024 frames of 440-6x2048-8806: 0.31 ms of products, 0.95 ms in all by SGD, 4.45 ms with natural gradient; 7 matrices
    "source": "for an H100: operations, and launches fitted to measured steps (docs/gpu.md); those of LF-MMI are counted",
    "gflop_per_s": 790e3,
    "s_per_launch": 4e-6,
    "launches": {"SGD": 16, "natural gradient": 30, "recurrent step": 5, "train_lfmmi": 1230},
}
_LEAST_SHARE = 0.1  # of what a call takes that is not its network's, where that seems to take more than all


@dataclass(frozen=True)
class MeasureRates:
    recipes: tuple[Path, ...] = argument("directories of finished recipes; with --run the first is that of egs/amazon_queen/s5", many=True)
    out: Path = option(Path("rates.json"), "file of rates to write")
    run: bool = option(False, "first run run.sh and the small runs in the first directory, as far as they are not complete")
    memory_of: Path | None = option(None, "a finished recipe of another size of which the memory alone is taken")


@dataclass(frozen=True)
class Sample:
    """An output: its amount of work, what its bytes grow with, core seconds, bytes, MB of a job and what that grows with; the rate of its
    network and what that takes."""

    amount: float
    size: float
    core_s: float
    num_bytes: float
    memory_mb: float
    held: float
    of_network: float = 0.0


def done_files(recipe: Path) -> list[tuple[Path, dict]]:
    """Done-files below a recipe in the order in which they were made, with their content."""
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in recipe.rglob(".done.json")]
    return sorted(found, key=lambda pair: pair[1]["ended"])


def samples_of(recipe: Path, rates: Rates) -> Iterator[tuple[str, Sample]]:
    """(kind of work, sample) of all outputs whose work is declared; what their networks take is by `rates`."""
    corpus, used = Corpus(disk_below(recipe)), usage_of(recipe)
    for path, done in done_files(recipe):
        call = from_command(done["command"], recipe)
        corpus.note(call)
        if call.name in WORKS:
            yield key_of(call, corpus), sample(call, path, done, used.get(f"{call.name} {call.words[-1]}"), corpus, rates)


def by_kind(recipes: Iterable[Path], rates: Rates) -> dict[str, list[Sample]]:
    """{kind of work: samples}"""
    samples = defaultdict(list)
    for recipe in recipes:
        for name, found in samples_of(recipe, rates):
            samples[name].append(found)
    return samples


def sample(call: Call, path: Path, done: dict, used: Usage | None, corpus: Corpus, rates: Rates) -> Sample:
    work = WORKS[call.name]
    core_s = used.cpu_s if used else done["seconds"] * work.num_workers(call)
    statuses = [json.loads(file.read_text(encoding="utf-8")) for file in (path.parent / "log").glob("*.status")]
    memory = max((status.get("peak_memory_mb") or 0.0 for status in statuses), default=used.memory_mb if used else 0.0)
    num_bytes = sum(size for size, *_ in done["files"].values())
    of_network = network_core_s(call, work, corpus, rates)
    return Sample(work.amount(call, corpus), work.size(call, corpus), core_s, num_bytes, memory, work.memory(call, corpus), of_network)


def rates_of(recipes: Iterable[Path], memory_of: Path | None) -> dict[str, Rate]:
    """{kind of work: rate}; those of networks first, since other work has scores of networks in it."""
    rates: dict[str, Rate] = {}
    for is_network in (True, False):
        known = Rates("", "", rates)
        samples = by_kind(recipes, known)
        of_memory = by_kind([memory_of] if memory_of else [], known)
        slopes = memory_slopes([samples, of_memory])
        rates |= {name: rate_of(name, found, of_memory[name], slopes) for name, found in samples.items()
                  if (name.split()[0] == "train_dnn") == is_network}  # fmt: skip
    return rates


def rate_of(name: str, samples: list[Sample], of_memory: list[Sample], slopes: dict[str, float]) -> Rate:
    own = [(one.amount, max(one.core_s - one.of_network, _LEAST_SHARE * one.core_s)) for one in samples]
    points = [(one.held, one.memory_mb) for one in samples + of_memory if one.memory_mb]
    return Rate(
        WORKS[name.split()[0]].unit,
        _rounded(line_through(own)),
        _rounded(line_through((one.size, one.num_bytes) for one in samples)),
        _rounded(memory_line(points, slopes.get(group_of(name)))),
        len(samples),
    )


def group_of(name: str) -> str:
    """Of kinds of work that hold the same in memory: frames for networks, features for GMMs, graphs, language models; '' for others."""
    program = name.split()[0]
    work = WORKS[program]
    if work.held is not nothing:
        return work.workers or "num-ranks"
    groups = {"decode": "graphs", "decode_fmllr": "graphs", "make_graph": "building", "make_ctc_graph": "building",
              "lm_rescore": "models", "prune_lm": "models", "mix_lms": "models"}  # fmt: skip
    return groups.get(program, "")


def memory_slopes(samples: list[dict[str, list[Sample]]]) -> dict[str, float]:
    """{group: MB for each unit held}: the slope that the kinds of a group have in common, each with what it takes at least."""
    squares, products = defaultdict(float), defaultdict(float)
    for name, found in chain.from_iterable(kinds.items() for kinds in samples):
        points = [(one.held, one.memory_mb) for one in found if one.memory_mb]
        middle = [sum(values) / len(values) for values in zip(*points)]
        squares[group_of(name)] += sum((held - middle[0]) ** 2 for held, _ in points)
        products[group_of(name)] += sum((held - middle[0]) * (memory - middle[1]) for held, memory in points)
    return {group: max(products[group] / squares[group], 0.0) for group in squares if group and squares[group]}


def memory_line(points: list[tuple[float, float]], slope: float | None) -> tuple[float, float]:
    """By the slope of the group, or of the points alone; of jobs whose memory does not grow, the greatest."""
    if slope is not None and points:
        return max(sum(memory - slope * held for held, memory in points) / len(points), 0.0), slope
    return line_through(points) if any(held for held, _ in points) else (max((memory for _, memory in points), default=0.0), 0.0)


def _rounded(line: tuple[float, float]) -> tuple[float, float]:
    return float(f"{line[0]:.4g}"), float(f"{line[1]:.4g}")


def run_what_is_missing(recipe: Path) -> None:
    """Raises UserError where the recipe or a small run fails."""
    if subprocess.run(["./run.sh"], cwd=recipe).returncode:
        raise UserError(f"{recipe}/run.sh failed; see what it says above")
    run_all(recipe)


def main(options: MeasureRates) -> None:
    recipes = options.recipes
    if options.run:
        run_what_is_missing(recipes[0])
    machines = {done["machine"]: done["ended"] for recipe in recipes for _, done in done_files(recipe)}
    if not machines:
        raise UserError(f"{recipes[0]}: no output of a program whose work is declared; run the recipe first, or give --run true")
    if len(machines) > 1:
        raise UserError(f"the recipes were run on several machines ({'; '.join(machines)}); give those of one")
    machine, ended = next(iter(machines.items()))
    rates = rates_of(recipes, options.memory_of)
    write_rates(options.out, Rates(machine, ended[:10], rates, GPU))
    log.info(f"{options.out}: {len(rates)} kinds of work, {sum(rate.num_measured for rate in rates.values())} outputs, {machine}")


if __name__ == "__main__":
    run_step(MeasureRates, main, __doc__)
