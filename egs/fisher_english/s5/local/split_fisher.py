#!/usr/bin/env python3
"""Split Fisher English in the order of calls, as in Kaldi's recipe: dev (first utterances), test (next ones),
train (the rest).

Reads   DATA, the output of local/prepare_fisher.py
Writes  OUT/dev OUT/test OUT/train

    local/split_fisher.py data/all data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import make_part, run_step
from pyasr.corpora.fisher.fisher_sets import split
from pyasr.data.parts import subsets
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class SplitFisher:
    data: Path = argument("data directory of all utterances")
    out: Path = argument("parent directory of the new data directories")
    num_dev: int = option(5000, "utterances of dev", minimum=1)
    num_test: int = option(5000, "utterances of test", minimum=1)


def main(options: SplitFisher) -> None:
    data = DataDir(options.data)
    inputs = subsets.table_files(data)
    for name, utterances in split(data.utterances, options.num_dev, options.num_test, options.data).items():
        make_part(
            options, options.out / name, inputs, lambda out: subsets.write_subset(data, out, utterances)
        )
        log.info(f"{options.out / name}: {len(utterances)} of {len(data.utterances)} utterances")


if __name__ == "__main__":
    run_step(SplitFisher, main, __doc__)
