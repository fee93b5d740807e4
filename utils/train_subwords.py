#!/usr/bin/env python3
"""Train the subword units of a CTC network on the transcripts of a data directory.

Reads   DATA/text
Writes  UNITS_DIR/{units.model,units.txt,words.txt}: the sentencepiece model; the units with their ids (<blk>
        is 0); the words of the text

Example:
    utils/train_subwords.py --num-units 300 data/train data/units
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.lang_dirs.subwords import SubwordOptions, subwords_of_data


@dataclass(frozen=True)
class TrainSubwords:
    data: Path = argument("data directory with transcripts")
    units_dir: Path = argument("directory of the units to write")
    subwords: SubwordOptions = group(SubwordOptions)


def main(options: TrainSubwords) -> None:
    with output_of(options, options.units_dir, [options.data / "text"]) as out:
        subwords = subwords_of_data(options.data, options.subwords, out)
    log.info(f"{options.units_dir}: {len(subwords)} units, {subwords.begins_word.sum()} of them begin words")


if __name__ == "__main__":
    run_step(TrainSubwords, main, __doc__)
