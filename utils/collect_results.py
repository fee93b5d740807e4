#!/usr/bin/env python3
"""Write the page of results of an experiment directory and show its table.

Reads   EXP/**/scoring, and the done-files of everything that was made on the way
Writes  PAGE; a file that is no such page is replaced with --force alone

    utils/collect_results.py exp exp/RESULTS.md
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument
from pyasr.base.output import atomic_write
from pyasr.base.step import check_replaceable, run_step
from pyasr.report.results import results_page, tables
from pyasr.report.systems import find_systems

_MARK = r"# Results\n\nWritten by `utils/collect_results\.py`"


@dataclass(frozen=True)
class CollectResults:
    exp: Path = argument("experiment directory")
    page: Path = argument("Markdown file to be written")


def main(options: CollectResults) -> None:
    check_replaceable(options.page, _MARK, "page of results that this program has written")
    systems = find_systems(options.exp)
    page = results_page(systems)
    if options.page.exists() and options.page.read_bytes() == page.encode():
        log.info(f"{options.page} is up to date")
    else:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(options.page) as f:
            f.write(page)
    print(tables(systems))


if __name__ == "__main__":
    run_step(CollectResults, main, __doc__, force="replace a file that is no page of results")
