#!/usr/bin/env python3
"""Store the result of a training, and of its decoding of the test set, as a line of a file.

Reads   MODEL_DIR/metrics.jsonl; MODEL_DIR/simulation.json of steps/simulate_parallel.py;
        MODEL_DIR/decode_test/scoring, if it exists
Writes  RESULTS; replaces a line of the same training

MODEL_DIR ends in `TABLE/ROW/COLUMN/seedN`, the name of the training.

    local/keep_training.py exp/experiments/ibm/batch/gradient/8192/seed1 parallel/ibm.jsonl
"""

from dataclasses import dataclass
from pathlib import Path

from comparison.kept_runs import keep

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step


@dataclass(frozen=True)
class KeepTraining:
    model_dir: Path = argument("directory of the training")
    results: Path = argument("file of results, one line of JSON each")
    command: str = option(
        "", "command line to store with the result; empty: the command that the training recorded"
    )


def main(options: KeepTraining) -> None:
    run = keep(options.model_dir, options.results, options.command)
    log.info(
        f"{options.results}: {run.name}: {run.verdict}"
        + ("" if run.loss is None else f", loss {run.loss:.3f}")
    )


if __name__ == "__main__":
    run_step(KeepTraining, main, __doc__)
