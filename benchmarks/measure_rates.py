#!/usr/bin/env python3
"""Measure the cost of programs in finished recipes, for plans (run.sh --plan true): core seconds, bytes and
memory by amount of work.

Command, seconds and files of an output come from its done-file, the memory from the jobs' status files, and
the amount of work from `pyasr.report.plan.works`. Core seconds are seconds times jobs or ranks. Use an
otherwise idle machine, and recipes of several sizes, so that the fixed cost of a run can be separated from
the cost that grows.

With `--run true`, run.sh of egs/amazon_queen/s5 runs first, unless it is complete, followed by small runs of
the programs that it does not call (benchmarks/small_runs.py). These are all measurements that plans need;
they take about an hour on two cores.

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
from pyasr.report.plan.planned_data import PlannedCorpus
from pyasr.report.plan.rates import Rate, Rates, line_through, write_rates
from pyasr.report.plan.works import WORKS, key_of, nothing

# 1,024 frames of 440-6x2048-8806: 0.31 ms of products, 0.95 ms in all by SGD, 4.45 ms with natural gradient;
# 7 matrices
GPU = {
    "source": (
        "for an H100: operations, and launches fitted to measured steps (docs/parallel/gpu.md); those of "
        "LF-MMI are counted"
    ),
    "gflop_per_s": 790e3,
    "s_per_launch": 4e-6,
    "launches": {"SGD": 16, "natural gradient": 30, "recurrent step": 5, "train_lfmmi": 1230},
}
_MIN_SHARE = 0.1  # minimum fraction of a call's core seconds that is not attributed to its network


@dataclass(frozen=True)
class MeasureRates:
    recipes: tuple[Path, ...] = argument(
        "directories of finished recipes; with --run, the first is egs/amazon_queen/s5", many=True
    )
    out: Path = option(Path("rates.json"), "file of rates to write")
    run: bool = option(False, "first run run.sh and the small runs in the first directory, unless complete")
    memory_of: Path | None = option(None, "finished recipe of another size, used only for memory")


@dataclass(frozen=True)
class Sample:
    """An output: amount of work, quantity that determines its bytes, core seconds, bytes, MB of a job and the
    quantity that determines them, core seconds of its network."""

    amount: float
    size: float
    core_s: float
    num_bytes: float
    memory_mb: float
    held: float
    of_network: float = 0.0


def done_files(recipe: Path) -> list[tuple[Path, dict]]:
    """Done-files below a recipe with their content, in the order of their creation."""
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in recipe.rglob(".done.json")]
    return sorted(found, key=lambda pair: pair[1]["ended"])


def samples_of(recipe: Path, rates: Rates) -> Iterator[tuple[str, Sample]]:
    """(kind of work, sample) of all outputs whose work is declared; the cost of their networks is taken from
    `rates`."""
    corpus, used = PlannedCorpus(disk_below(recipe)), usage_of(recipe)
    for path, done in done_files(recipe):
        call = from_command(done["command"], recipe)
        corpus.note(call)
        if call.name in WORKS:
            yield (
                key_of(call, corpus),
                sample(call, path, done, used.get(f"{call.name} {call.words[-1]}"), corpus, rates),
            )


def by_kind(recipes: Iterable[Path], rates: Rates) -> dict[str, list[Sample]]:
    """Samples as {kind of work: samples}."""
    samples = defaultdict(list)
    for recipe in recipes:
        for name, found in samples_of(recipe, rates):
            samples[name].append(found)
    return samples


def sample(
    call: Call, path: Path, done: dict, used: Usage | None, corpus: PlannedCorpus, rates: Rates
) -> Sample:
    work = WORKS[call.name]
    core_s = used.cpu_s if used else done["seconds"] * work.num_workers(call)
    statuses = [
        json.loads(file.read_text(encoding="utf-8")) for file in (path.parent / "log").glob("*.status")
    ]
    memory = max(
        (status.get("peak_memory_mb") or 0.0 for status in statuses), default=used.memory_mb if used else 0.0
    )
    num_bytes = sum(size for size, *_ in done["files"].values())
    of_network = network_core_s(call, work, corpus, rates)
    return Sample(
        work.amount(call, corpus),
        work.size(call, corpus),
        core_s,
        num_bytes,
        memory,
        work.memory(call, corpus),
        of_network,
    )


def rates_of(recipes: Iterable[Path], memory_of: Path | None) -> dict[str, Rate]:
    """{kind of work: rate}; networks first, because other work includes scores of networks."""
    rates: dict[str, Rate] = {}
    for is_network in (True, False):
        known = Rates("", "", rates)
        samples = by_kind(recipes, known)
        of_memory = by_kind([memory_of] if memory_of else [], known)
        slopes = memory_slopes([samples, of_memory])
        rates |= {
            name: rate_of(name, found, of_memory[name], slopes)
            for name, found in samples.items()
            if (name.split()[0] == "train_dnn") == is_network
        }
    return rates


def rate_of(name: str, samples: list[Sample], of_memory: list[Sample], slopes: dict[str, float]) -> Rate:
    own = [(one.amount, max(one.core_s - one.of_network, _MIN_SHARE * one.core_s)) for one in samples]
    points = [(one.held, one.memory_mb) for one in samples + of_memory if one.memory_mb]
    return Rate(
        WORKS[name.split()[0]].unit,
        _rounded(line_through(own)),
        _rounded(line_through((one.size, one.num_bytes) for one in samples)),
        _rounded(memory_line(points, slopes.get(group_of(name)))),
        len(samples),
    )


def group_of(name: str) -> str:
    """Group of the kinds of work with the same data in memory: frames for networks, features for GMMs,
    graphs, language models; '' for others."""
    program = name.split()[0]
    work = WORKS[program]
    if work.held is not nothing:
        return work.workers or "num-ranks"
    groups = {
        "decode": "graphs",
        "decode_fmllr": "graphs",
        "make_graph": "building",
        "make_ctc_graph": "building",
        "lm_rescore": "models",
        "prune_lm": "models",
        "mix_lms": "models",
    }
    return groups.get(program, "")


def memory_slopes(samples: list[dict[str, list[Sample]]]) -> dict[str, float]:
    """{group: MB per unit of data}: the common slope of the kinds of a group, each of which has its own
    offset."""
    squares, products = defaultdict(float), defaultdict(float)
    for name, found in chain.from_iterable(kinds.items() for kinds in samples):
        points = [(one.held, one.memory_mb) for one in found if one.memory_mb]
        middle = [sum(values) / len(values) for values in zip(*points)]
        squares[group_of(name)] += sum((held - middle[0]) ** 2 for held, _ in points)
        products[group_of(name)] += sum((held - middle[0]) * (memory - middle[1]) for held, memory in points)
    return {
        group: max(products[group] / squares[group], 0.0) for group in squares if group and squares[group]
    }


def memory_line(points: list[tuple[float, float]], slope: float | None) -> tuple[float, float]:
    """(offset, slope) with the slope of the group, else fitted to the points; for jobs whose memory does not
    grow, the maximum and 0."""
    if slope is not None and points:
        return max(sum(memory - slope * held for held, memory in points) / len(points), 0.0), slope
    return (
        line_through(points)
        if any(held for held, _ in points)
        else (max((memory for _, memory in points), default=0.0), 0.0)
    )


def _rounded(line: tuple[float, float]) -> tuple[float, float]:
    return float(f"{line[0]:.4g}"), float(f"{line[1]:.4g}")


def run_what_is_missing(recipe: Path) -> None:
    """Run the recipe and the small runs. Raises UserError if one fails."""
    if subprocess.run(["./run.sh"], cwd=recipe).returncode:
        raise UserError(f"{recipe}/run.sh failed; see what it says above")
    run_all(recipe)


def main(options: MeasureRates) -> None:
    recipes = options.recipes
    if options.run:
        run_what_is_missing(recipes[0])
    machines = {done["machine"]: done["ended"] for recipe in recipes for _, done in done_files(recipe)}
    if not machines:
        raise UserError(
            f"{recipes[0]}: no output of a program whose work is declared; run the recipe first, or give "
            "--run true"
        )
    if len(machines) > 1:
        raise UserError(
            f"the recipes were run on several machines ({'; '.join(machines)}); give those of one"
        )
    machine, ended = next(iter(machines.items()))
    rates = rates_of(recipes, options.memory_of)
    write_rates(options.out, Rates(machine, ended[:10], rates, GPU))
    log.info(
        f"{options.out}: {len(rates)} kinds of work, {sum(rate.num_measured for rate in rates.values())} "
        f"outputs, {machine}"
    )


if __name__ == "__main__":
    run_step(MeasureRates, main, __doc__)
