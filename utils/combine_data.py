#!/usr/bin/env python3
"""Combine several data directories into one.

Reads   SOURCES
Writes  OUT

    utils/combine_data.py data/train_all data/train_a data/train_b
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.parts import subsets
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class CombineData:
    out: Path = argument("data directory to write")
    sources: tuple = argument("data directories", many=True)


def main(options: CombineData) -> None:
    sources = [DataDir(Path(source)) for source in options.sources]
    with output_of(
        options, options.out, [path for data in sources for path in subsets.table_files(data)]
    ) as out:
        subsets.combine(sources, out)
    log.info(f"{options.out}: {subsets.num_utterances(options.out)} utterances of {len(sources)} directories")


if __name__ == "__main__":
    run_step(CombineData, main, __doc__)
