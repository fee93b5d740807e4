"""The tables of docs/running/scale.md: growth of programs, cost of whole recipes, and memory for jobs,
ranks and stores."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from scale_ground import ROOT
from scale_rows import TABLES
from scale_usage import Growth, Usage

from pyasr.base.outputs.run_record import commit
from pyasr.report.plan.plan_page import HEAD, row
from pyasr.report.plan.rates import Rates, read_rates
from pyasr.report.text_table import markdown_table

sys.path.append(str(Path(__file__).resolve().parents[1]))
from marked_page import replace_between  # noqa: E402

_PARTS = ("recipes", "needs", "growth")
_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_MARKS = {"cpu_s": "CPU", "memory_mb": "memory"}
_HOURS = {
    "300 h": (300, 264_000),
    "960 h": (960, 281_000),
    "2,000 h": (2000, 2_200_000),
    "2,000 h at three speeds": (6000, 6_600_000),
}
_FRAMES_PER_HOUR = 360_000
_GMMS = ("train_mono", "train_deltas", "train_lda_mllt", "train_sat")
_JOB_GB = 4  # memory of a job


def growth_table(growths: list[Growth]) -> str:
    """A line per measured row."""
    head = "program, largest measured, CPU s, MB, exponents, at, CPU s there, MB there, limits, broken".split(
        ", "
    )
    return markdown_table(head, [_growth_line(growth) for growth in growths if growth.usages])


def _growth_line(growth: Growth) -> list[str]:
    measured, largest = growth.row, max(growth.usages, key=lambda usage: usage.amount)
    exponents = [growth.exponent(quantity) for quantity in _MARKS]
    given = ((measured.cpu_s, "CPU s"), (measured.memory_mb, "MB"))
    return [
        measured.name,
        f"{number(largest.amount)} {measured.ladder.unit}",
        number(largest.cpu_s),
        number(largest.memory_mb),
        ", ".join("-" if value is None else f"{value:.1f}" for value in exponents),
        number(growth.target),
        *(_expected(growth, quantity, largest) for quantity in _MARKS),
        ", ".join(f"{number(limit)} {unit}" for limit, unit in given if limit),
        ", ".join(f"**{_MARKS[quantity]}**" for quantity in growth.broken()),
    ]


def _expected(growth: Growth, quantity: str, largest: Usage) -> str:
    value = growth.at(quantity, growth.target)
    return "?" if value is None else f"{'x ' if growth.target > largest.amount else ''}{number(value)}"


def number(value: float) -> str:
    """Two or three digits: 0.52, 7.1, 31 k, 6 M."""
    suffixes = ((size, f" {suffix}") for size, suffix in _SUFFIXES if value >= max(size, 1e4))
    size, suffix = next(suffixes, (1.0, ""))
    scaled = value / size
    return f"{scaled:.{0 if scaled >= 20 else 1 if scaled >= 1 else 2}f}".removesuffix(".0") + suffix


def recipe_table(rates: Rates) -> str:
    """Cost of recipes by group of programs."""
    from scale_recipes import costs  # runs recipes, and imports what they are planned with

    lines = []
    for recipe, groups, total in costs(rates):
        jobs = f"`--nj {recipe.jobs} --num-ranks {recipe.ranks}`"
        lines += [[recipe.name, jobs, *row(name, cost)] for name, cost in [*groups.items(), ("all", total)]]
    return markdown_table(["recipe", "jobs", "part", *HEAD[1:]], lines)


def needs_table(growths: list[Growth], rates: Rates) -> str:
    """Memory by hours of speech: of tools on data directories, of features over all jobs of a GMM training,
    of frames over all ranks of a network."""
    head = ["speech", "utterances", "largest tool on data directories", "features of GMMs, all jobs"]
    head += [f"jobs of {_JOB_GB} GB", "frames of networks, all ranks"]
    return markdown_table(head, [_needs_line(name, *size, growths, rates) for name, size in _HOURS.items()])


def _needs_line(name: str, hours: int, utterances: int, growths: list[Growth], rates: Rates) -> list[str]:
    on_tables = [growth for growth in growths if growth.row.ladder is TABLES and growth.row.memory_mb]
    tools = [growth.at("memory_mb", utterances) or 0.0 for growth in on_tables]
    gmm_gb = features_mb(growths, hours * _FRAMES_PER_HOUR) / 1000
    networks = [
        rate.memory_mb[1] for key, rate in rates.of.items() if key.startswith("train_dnn feed-forward")
    ]
    network_gb = hours * max(networks) / 1000
    sizes = [f"{number(size)} GB" for size in (max(tools, default=0.0) / 1000, gmm_gb, network_gb)]
    return [name, number(utterances), *sizes[:2], str(math.ceil(gmm_gb / _JOB_GB)), sizes[2]]


def features_mb(growths: list[Growth], frames: float) -> float:
    """MB of a GMM training in addition to one with few frames, over all jobs: the maximum of the measured
    rows."""
    measured = [growth for growth in growths if growth.row.name in _GMMS and len(growth.usages) > 1]
    held = [
        growth.at("memory_mb", frames) - min(usage.memory_mb for usage in growth.usages)
        for growth in measured
    ]
    return max(held, default=0.0)


def write_page(path: Path, growths: list[Growth], machine: str) -> None:
    """Write the three tables, with their origin. Raises UserError if the page lacks the marks for them."""
    rates = read_rates(ROOT / "benchmarks/rates.json")
    texts = [
        f"{recipe_table(rates)}\n\nRates of {rates.machine}, {rates.measured}.",
        needs_table(growths, rates),
        f"{growth_table(growths)}\n\n{_origin(growths, machine)}",
    ]
    for part, text in zip(_PARTS, texts):
        begin, end = f"<!-- {part}, written by benchmarks/scaling/scale.py -->", f"<!-- end of {part} -->"
        replace_between(path, begin, end, text)


def _origin(growths: list[Growth], machine: str) -> str:
    commits = sorted({usage.commit for growth in growths for usage in growth.usages})
    return f"Measured on {machine}; commits {', '.join(commits or [commit()])}."
