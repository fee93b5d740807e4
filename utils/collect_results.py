#!/usr/bin/env python3
"""Write the page of results of an experiment directory and show its table.

Reads   EXP/**/scoring, and the done-files of everything that was made on the way; KEPT; PUBLISHED
Writes  PAGE; a file that is no such page is replaced with --force alone; KEPT

    utils/collect_results.py exp exp/RESULTS.md
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.output import atomic_write
from pyasr.base.step import check_replaceable, run_step
from pyasr.report.beside_published import published_table, read_published
from pyasr.report.results import results_page, tables
from pyasr.report.seed_runs import read_seed_runs, seed_runs, together, write_seed_runs
from pyasr.report.systems import find_systems

_MARK = r"# Results\n\nWritten by `utils/collect_results\.py`"


@dataclass(frozen=True)
class CollectResults:
    exp: Path = argument("experiment directory")
    page: Path = argument("Markdown file to be written")
    kept: Path | None = option(None, "file (JSON) of networks with several seeds that earlier runs have trained, perhaps elsewhere: they "
                                     "stand on the page, too, and those of EXP are added to it")
    published: Path | None = option(None, "file of published WERs, which the page shows beside those of EXP: lines 'DECODING WER SOURCE', "
                                          "with tabs between them, where DECODING is a decode directory below EXP")


def main(options: CollectResults) -> None:
    check_replaceable(options.page, _MARK, "page of results that this program has written")
    systems = find_systems(options.exp)
    kept = read_seed_runs(options.kept) if options.kept else []
    runs = together(kept, seed_runs(systems))
    page = results_page(systems, runs, published_table(options.exp, read_published(options.published)) if options.published else "")
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
    run_step(CollectResults, main, __doc__, force="replace a file that is no page of results")
