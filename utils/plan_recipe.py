#!/usr/bin/env python3
"""Estimate the cost of a recipe by stage (CPU time, wall-clock time, disk, memory per job, GPU time), and
whether it fits this machine.

Reads   RECORD, the programs that the recipe would run (utils/recipe.sh writes it for `run.sh --plan true`),
        their configuration files, networks and data directories; benchmarks/rates.json, the measured cost of
        the programs
Writes  the estimate to standard output

Data directories have to be prepared. The cost of a program grows with hours of speech, model size and
options, as declared in `pyasr.report.plan.works`. The exit status is 1 if disk or memory is not sufficient.
Usually the recipe runs this program:

    utils/plan_recipe.py --rates benchmarks/rates.json exp/log/plan.calls
"""

from dataclasses import dataclass
from pathlib import Path

import pyasr
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.report.plan.estimate import make_plan
from pyasr.report.plan.plan_page import page
from pyasr.report.plan.planned_calls import read_record
from pyasr.report.plan.planned_data import PlannedCorpus
from pyasr.report.plan.rates import read_rates
from pyasr.report.plan.room import lacks


@dataclass(frozen=True)
class PlanRecipe:
    record: Path = argument("record of the program calls of a recipe, one per line")
    rates: Path | None = option(
        None, "rates file of benchmarks/measure_rates.py; none: benchmarks/rates.json of the toolkit"
    )


def main(options: PlanRecipe) -> None:
    from pyasr.report.plan.disk import disk_below

    rates = read_rates(options.rates or Path(pyasr.__file__).resolve().parents[1] / "benchmarks/rates.json")
    corpus = PlannedCorpus(disk_below(Path()))
    plan = make_plan(read_record(options.record), corpus, rates)
    lacking = list(lacks(plan))
    for sentence in lacking:
        print(f"DOES NOT FIT: {sentence}")
    for line in page(plan, corpus, rates):
        print(line)
    if lacking:
        raise UserError(f"the run does not fit this machine: {'; '.join(lacking)}")


if __name__ == "__main__":
    run_step(PlanRecipe, main, __doc__)
