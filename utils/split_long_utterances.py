#!/usr/bin/env python3
"""Split long utterances at silences into pieces of limited length, with their words, by the word times of a
ctm.

Reads   DATA/{utt2spk,text,wav.scp,segments,reco2file_and_channel}, CTM
Writes  OUT, without features; DATA/.recordings (used to detect that a recording was replaced)

    steps/get_train_ctm.py data/train data/lang exp/tri3_ali exp/tri3_ali/ctm
    utils/split_long_utterances.py --max-segment-s 10 data/train exp/tri3_ali/ctm/ctm data/train_split
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.checks.recording_prints import recording_prints
from pyasr.data.parts import subsets
from pyasr.data.parts.side_files import carry
from pyasr.data.parts.subsegments import subsegmented
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import read_ctm
from pyasr.score.split_utterances import UtteranceSplitOptions, split_utterances


@dataclass(frozen=True)
class SplitLongUtterances:
    data: Path = argument("data directory with transcripts")
    ctm: Path = argument("word times in the recordings (ctm), from an alignment or a recogniser")
    out: Path = argument("data directory to write")
    split: UtteranceSplitOptions = group(UtteranceSplitOptions)


def main(options: SplitLongUtterances) -> None:
    data = DataDir(options.data)
    data.check_commands()
    inputs = [*subsets.table_files(data, with_features=False), options.ctm]
    with recording_prints(data.path) as audio, output_of(options, options.out, inputs + audio) as out:
        parts = split_utterances(data, read_ctm(options.ctm), options.split)
        subsets.write_all(out, subsegmented(data, parts, with_text=True))
        carry(data, out, with_features=False)
    num_split = sum(len(found) > 1 for found in parts.values())
    log.info(
        f"{options.out}: {sum(map(len, parts.values()))} utterances of {len(parts)}, of which {num_split} "
        "were split"
    )


if __name__ == "__main__":
    run_step(SplitLongUtterances, main, __doc__)
