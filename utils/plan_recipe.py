#!/usr/bin/env python3
"""Say what a recipe takes before it is run: core hours, hours, disk, memory of a job, hours of a GPU, by stages.

Reads   RECORD, the programs that the recipe would run (utils/recipe.sh writes it for `run.sh --plan true`), their configuration files and
        the lengths of data directories; benchmarks/rates.json, what these programs took where they were measured
Writes  nothing

Data directories have to be prepared. What a program takes grows with hours of speech, sizes of models and options as
`pyasr.report.plan.works` declares. Usually it is run by the recipe:

    utils/plan_recipe.py --rates benchmarks/rates.json exp/log/plan.calls
"""

from dataclasses import dataclass
from pathlib import Path

import pyasr
from pyasr.base.options import argument, option
from pyasr.base.step import run_step
from pyasr.data.datadir import DataDir
from pyasr.report.plan.calls import read_record
from pyasr.report.plan.corpus import Corpus, Speech
from pyasr.report.plan.estimate import make_plan, told
from pyasr.report.plan.rates import read_rates


@dataclass(frozen=True)
class PlanRecipe:
    record: Path = argument("the calls of a recipe, a line for each")
    rates: Path | None = option(None, "file of benchmarks/measure_rates.py; unless given, that of the toolkit")


def speech_of(path: Path) -> Speech | None:
    """Of a data directory; None for one that is not there."""
    if not (path / "utt2spk").exists():
        return None
    seconds = DataDir(path).audio_durations
    return Speech(sum(seconds.values()) / 3600, len(seconds))


def main(options: PlanRecipe) -> None:
    rates = read_rates(options.rates or Path(pyasr.__file__).resolve().parents[1] / "benchmarks/rates.json")
    corpus = Corpus(lambda path: speech_of(Path(path)))
    plan = make_plan(read_record(options.record), corpus, rates)
    for line in told(plan, corpus, rates):
        print(line)


if __name__ == "__main__":
    run_step(PlanRecipe, main, __doc__)
