#!/usr/bin/env python3
"""Write the tables of a published experiment, with our numbers next to the published ones.

Reads   TABLES, EXP/*/{metrics.jsonl,decode_*/scoring} and the done-files (.done.json) of the systems
Writes  PAGE; any other existing file is replaced only with --force

Numbers that have not been measured yet are shown as missing, so the page can be written before the first
training.

    utils/compare_published.py local/experiments/su_chen.tsv exp/experiments/su_chen \\
        exp/experiments/su_chen/RESULTS.md
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.outputs.output import atomic_write
from pyasr.report.published_experiment import num_missing, page, read_experiment

_MARK = r"# [^\n]*\n\nWritten by `utils/compare_published\.py`"


@dataclass(frozen=True)
class ComparePublished:
    tables: Path = argument(
        "file of published tables: tab-separated lines TABLE ROW COLUMN PUBLISHED MEASURE"
    )
    exp: Path = argument("directory of the experiment's systems; need not exist")
    page: Path = argument("Markdown file to write")


def main(options: ComparePublished) -> None:
    check_replaceable(options.page, _MARK, "page of published results written by this program")
    experiment = read_experiment(options.tables)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(options.page) as f:
        f.write(page(experiment, options.exp))
    missing, total = num_missing(experiment, options.exp)
    log.info(f"{options.page}: {total - missing} of {total} numbers are ours, {missing} are missing")


if __name__ == "__main__":
    run_step(
        ComparePublished,
        main,
        __doc__,
        force="replace an existing file that is not a page of published results",
    )
