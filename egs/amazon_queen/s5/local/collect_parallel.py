#!/usr/bin/env python3
"""Write the report of published experiments on parallel training: claims with our verdicts, tables, and
figures.

Reads   RESULTS/*.jsonl of local/keep_training.py
Writes  PAGE and WORK_TABLE_{loss,wer,time,drift}.svg in the same directory, with --curves also overview.svg;
        any other existing file PAGE is replaced only with --force

    local/experiments/page.sh        # all experiments of a recipe
    local/collect_parallel.py --claims local/experiments/claims.tsv --planned exp/experiments/planned \\
        parallel parallel/RESULTS.md
"""

from dataclasses import dataclass
from pathlib import Path

from comparison.claims import read_claims
from comparison.comparison_page import page, pictures
from comparison.experiment_pictures import overview, read_curves
from comparison.experiments import Experiments, kept_cells, read_planned

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write

_MARK = r"# Parallel training on virtual learners\n\nWritten by `(utils|local)/collect_parallel\.py`"


@dataclass(frozen=True)
class CollectParallel:
    results: Path = argument("directory of kept trainings, files WORK.jsonl")
    page: Path = argument("Markdown file to write")
    claims: Path | None = option(
        None, "file of published claims: tab-separated lines CLAIM SOURCE PUBLISHED TEST"
    )
    planned: Path | None = option(
        None,
        "file of planned trainings, as local/experiments/page.sh writes it; trainings that have "
        "not been run are shown as missing",
    )
    curves: Path | None = option(
        None, "file of the curves of overview.svg, loss against time: tab-separated lines LABEL CELL"
    )


def main(options: CollectParallel) -> None:
    check_replaceable(options.page, _MARK, "report of parallel training written by this program")
    claims = read_claims(options.claims) if options.claims else []
    found = Experiments(
        claims, kept_cells(options.results), read_planned(options.planned) if options.planned else []
    )
    if not found.names:
        raise UserError(
            f"{options.results}: no kept trainings (*.jsonl); run local/experiments/page.sh, or give "
            "--planned"
        )
    drawn = pictures(found)
    if options.curves:
        drawn["overview"] = overview(found.cells, read_curves(options.curves))
    options.page.parent.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.svg": picture for name, picture in drawn.items() if picture}
    files[options.page.name] = page(found)
    for name, content in files.items():
        with atomic_write(options.page.with_name(name)) as f:
            f.write(content)
    log.info(f"{options.page}: {len(found.runs)} simulations")


if __name__ == "__main__":
    run_step(
        CollectParallel,
        main,
        __doc__,
        force="replace an existing file that is not a report of parallel training",
    )
