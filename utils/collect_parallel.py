#!/usr/bin/env python3
"""Write the page of a comparison of parallel schemes on virtual learners, with published numbers beside ours, and its pictures.

Reads   EXP/*/{simulation.json,metrics.jsonl} of steps/simulate_parallel.py, and EXP/*/decode_test/scoring where there is one;
        EXP/real/SCHEME_RANKS/{final.nnet,metrics.jsonl} of steps/train_dnn.py; with --claims also the files *.jsonl that lie where PAGE
        does, which utils/keep_simulation.py has written
Writes  PAGE, and beside it speed_up.svg, loss.svg, consensus.svg, wer.svg, and those of kept trainings; a page that is no such one is
        replaced with --force alone

    utils/collect_parallel.py exp/parallel exp/parallel/RESULTS.md
    utils/collect_parallel.py --claims local/experiments/claims.tsv exp/parallel parallel/CLAIMS.md
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.output import atomic_write
from pyasr.base.step import check_replaceable, run_step
from pyasr.report.claims import read_claims
from pyasr.report.experiments import NO_EXPERIMENTS, Experiments, kept_cells
from pyasr.report.parallel import all_pictures, page
from pyasr.report.parallel_runs import Runs, find_real_runs, find_runs

_MARK = r"# Parallel training on virtual learners\n\nWritten by `utils/collect_parallel\.py`"


@dataclass(frozen=True)
class CollectParallel:
    exp: Path = argument("directory whose subdirectories are simulations")
    page: Path = argument("Markdown file to be written")
    claims: Path | None = option(None, "file of published claims, lines CLAIM SOURCE PUBLISHED TEST with tabs between them; simulations in "
                                       "EXP are not needed then")


def main(options: CollectParallel) -> None:
    check_replaceable(options.page, _MARK, "page of parallel training that this program has written")
    experiments = Experiments(read_claims(options.claims), kept_cells(options.page.parent)) if options.claims else NO_EXPERIMENTS
    runs = Runs([]) if options.claims and not options.exp.exists() else find_runs(options.exp)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.svg": picture for name, picture in all_pictures(runs, experiments).items()}
    files[options.page.name] = page(runs, find_real_runs(options.exp / "real"), experiments)
    for name, content in files.items():
        with atomic_write(options.page.with_name(name)) as f:
            f.write(content)
    log.info(f"{options.page}: {len(runs.all) + len(experiments.runs)} simulations")


if __name__ == "__main__":
    run_step(CollectParallel, main, __doc__, force="replace a file that is no page of parallel training")
