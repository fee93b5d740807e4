#!/usr/bin/env python3
"""Say what a recipe takes before it is run: CPU time, time, disk, memory of a job, GPU time, by stages; and whether that fits here.

Reads   RECORD, the programs that the recipe would run (utils/recipe.sh writes it for `run.sh --plan true`), their configuration files,
        networks, the lengths of data directories; benchmarks/rates.json, what these programs took where they were measured
Writes  nothing

Data directories have to be prepared. What a program takes grows with hours of speech, sizes of models and options as
`pyasr.report.plan.works` declares. The exit status is 1 where disk or memory is not enough. Usually it is run by the recipe:

    utils/plan_recipe.py --rates benchmarks/rates.json exp/log/plan.calls
"""

from dataclasses import dataclass
from pathlib import Path

import pyasr
from pyasr.base.errors import UserError
from pyasr.base.options import argument, option
from pyasr.base.step import run_step
from pyasr.report.plan.calls import read_record
from pyasr.report.plan.corpus import Corpus
from pyasr.report.plan.estimate import make_plan
from pyasr.report.plan.rates import read_rates
from pyasr.report.plan.room import lacks
from pyasr.report.plan.told import page


@dataclass(frozen=True)
class PlanRecipe:
    record: Path = argument("the calls of a recipe, a line for each")
    rates: Path | None = option(None, "file of benchmarks/measure_rates.py; unless given, that of the toolkit")


def main(options: PlanRecipe) -> None:
    from pyasr.report.plan.disk import disk_below

    rates = read_rates(options.rates or Path(pyasr.__file__).resolve().parents[1] / "benchmarks/rates.json")
    corpus = Corpus(disk_below(Path()))
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
