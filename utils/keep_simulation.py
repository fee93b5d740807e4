#!/usr/bin/env python3
"""Keep the result of a simulated training, and of its decoding of the test set, as a line of a file.

Reads   MODEL_DIR/{simulation.json,metrics.jsonl} of steps/simulate_parallel.py, and MODEL_DIR/decode_test/scoring where there is one
Writes  RESULTS; a line of the same training is replaced

MODEL_DIR ends in TABLE/ROW/COLUMN/seedN, the name of the training.

    utils/keep_simulation.py exp/experiments/ibm/batch/gradient/8192/seed1 parallel/ibm.jsonl
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.step import run_step
from pyasr.report.kept_runs import keep


@dataclass(frozen=True)
class KeepSimulation:
    model_dir: Path = argument("directory of the simulation")
    results: Path = argument("file of results, a line of JSON each")
    command: str = option("", "command to be kept with it; empty: the one that was recorded")


def main(options: KeepSimulation) -> None:
    run = keep(options.model_dir, options.results, options.command)
    log.info(f"{options.results}: {run.name}: {run.verdict}" + ("" if run.loss is None else f", loss {run.loss:.3f}"))


if __name__ == "__main__":
    run_step(KeepSimulation, main, __doc__)
