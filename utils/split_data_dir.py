#!/usr/bin/env python3
"""Split a data directory into NUM parts of nearly equal duration; speakers stay whole if possible.

Reads   DATA
Writes  DATA/splitNUM/1 ... DATA/splitNUM/NUM

    utils/split_data_dir.py data/train 4
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError
from pyasr.data.parts import subsets
from pyasr.data.parts.job_parts import write_parts
from pyasr.data.tables.datadir import DataDir, split


@dataclass(frozen=True)
class SplitDataDir:
    data: Path = argument("data directory")
    num: int = argument("number of parts")


def main(options: SplitDataDir) -> None:
    if options.num < 1:
        raise UserError(f"NUM: invalid number of parts {options.num}; give at least 1")
    data, where = DataDir(options.data), options.data / f"split{options.num}"
    if options.num > len(data.utt2spk):
        raise UserError(
            f"NUM: {len(data.utt2spk)} utterances of {options.data} cannot be split into {options.num} "
            "parts; give fewer"
        )
    with output_of(options, where, subsets.table_files(data)) as out:
        lists = split(data, options.num)
        subsets.check_recordings(data, lists)
        parts = [out / str(number) for number in range(1, options.num + 1)]
        for part in parts:
            part.mkdir()
        write_parts(subsets.all_tables(data), lists, parts)
    log.info(f"{where}: {options.num} parts of {len(data.utt2spk)} utterances")


if __name__ == "__main__":
    run_step(SplitDataDir, main, __doc__)
