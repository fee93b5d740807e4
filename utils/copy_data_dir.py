#!/usr/bin/env python3
"""Copy a data directory, optionally with new names of utterances and speakers.

Reads   DATA
Writes  OUT

    utils/copy_data_dir.py --features false data/train data/train_hires
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.parts import subsets
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class CopyDataDir:
    data: Path = argument("data directory")
    out: Path = argument("data directory to write")
    features: bool = option(True, "copy the feature tables, too; false if new features will be extracted")
    renaming: subsets.Renaming = group(subsets.Renaming)


def main(options: CopyDataDir) -> None:
    data = DataDir(options.data)
    with output_of(options, options.out, subsets.table_files(data, options.features)) as out:
        subsets.copy(data, out, options.renaming, options.features)
    log.info(f"{options.out}: {len(data.utt2spk)} utterances")


if __name__ == "__main__":
    run_step(CopyDataDir, main, __doc__)
