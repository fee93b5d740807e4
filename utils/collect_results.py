#!/usr/bin/env python3
"""Write the results page of an experiment directory and print its table.

Reads   EXP/**/scoring and the done-files (.done.json) of the directories that lead to it; KEPT; PUBLISHED
Writes  PAGE (any other existing file is replaced only with --force); KEPT

    utils/collect_results.py exp exp/RESULTS.md
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.outputs.output import atomic_write
from pyasr.report.published_comparison import published_table, read_published
from pyasr.report.results import results_page, tables
from pyasr.report.seed_runs import read_seed_runs, seed_runs, together, write_seed_runs
from pyasr.report.systems import find_systems

_MARK = r"# Results\n\nWritten by `utils/collect_results\.py`"


@dataclass(frozen=True)
class CollectResults:
    exp: Path = argument("experiment directory")
    page: Path = argument("Markdown file to write")
    kept: Path | None = option(
        None,
        "JSON file of networks that earlier runs trained with several seeds; the page includes "
        "these networks, and those of EXP are added to the file",
    )
    published: Path | None = option(
        None,
        "file of published WERs, shown next to those of EXP: tab-separated lines DECODING WER SOURCE, "
        "where DECODING is a decode directory below EXP",
    )


def main(options: CollectResults) -> None:
    check_replaceable(options.page, _MARK, "results page written by this program")
    systems = find_systems(options.exp)
    kept = read_seed_runs(options.kept) if options.kept else []
    runs = together(kept, seed_runs(systems))
    page = results_page(
        systems,
        runs,
        published_table(options.exp, read_published(options.published)) if options.published else "",
    )
    if options.kept:
        write_seed_runs(options.kept, runs)
    if options.page.exists() and options.page.read_bytes() == page.encode():
        log.info(f"{options.page} is up to date")
    else:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(options.page) as f:
            f.write(page)
    print(tables(systems, runs))


if __name__ == "__main__":
    run_step(CollectResults, main, __doc__, force="replace an existing file that is not a results page")
