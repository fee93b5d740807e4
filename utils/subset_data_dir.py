#!/usr/bin/env python3
"""Make a data directory of some of the utterances of another. Give exactly one way of choosing them.

If DATA has fewer than N utterances, all are taken, with a warning, so that recipes run on smaller corpora.

Reads   DATA, --utt-list or --spk-list
Writes  OUT

    utils/subset_data_dir.py --shortest 500 data/train data/train_500short
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.option_uses import any_of, if_set
from pyasr.base.options import argument, option
from pyasr.base.step import output_of, run_step
from pyasr.data import subsets
from pyasr.data.datadir import DataDir
from pyasr.data.side_files import carry


@dataclass(frozen=True)
class SubsetDataDir:
    data: Path = argument("data directory")
    out: Path = argument("data directory to be made")
    first: int | None = option(None, "the first N utterances", minimum=1)
    all_but_first: int | None = option(None, "all utterances but the first N", minimum=1)
    last: int | None = option(None, "the last N utterances", minimum=1)
    shortest: int | None = option(None, "the N shortest utterances", minimum=1)
    random: int | None = option(None, "N utterances drawn by --seed", minimum=1)
    per_spk: int | None = option(None, "up to N utterances of every speaker", minimum=1)
    speakers: int | None = option(None, "whole speakers until there are N utterances", minimum=1)
    max_same_text: int | None = option(None, "up to N utterances of every transcript, drawn by --seed, as of Kaldi's remove_dup_utts.sh",
                                       minimum=1)
    utt_list: Path | None = option(None, "the utterances that a file lists")
    spk_list: Path | None = option(None, "the speakers that a file lists")
    seed: int = option(0, "seed of the drawing", only=any_of(if_set("random"), if_set("max-same-text")))


def choose(data: DataDir, options: SubsetDataDir) -> list[str]:
    ways = {
        "first": lambda value: subsets.first(data, value),
        "all_but_first": lambda value: subsets.all_but_first(data, value),
        "last": lambda value: subsets.last(data, value),
        "shortest": lambda value: subsets.shortest(data, value),
        "random": lambda value: subsets.random_choice(data, value, options.seed),
        "per_spk": lambda value: subsets.per_speaker(data, value),
        "speakers": lambda value: subsets.of_speakers(data, value),
        "max_same_text": lambda value: subsets.without_repetitions(data, value, options.seed),
        "utt_list": subsets.listed,
        "spk_list": lambda value: subsets.utterances_of(data, subsets.listed(value)),
    }
    given = [name for name in ways if getattr(options, name) is not None]
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise UserError(f"{len(given)} ways of choosing utterances are given; give one of {flags}")
    return ways[given[0]](getattr(options, given[0]))


def main(options: SubsetDataDir) -> None:
    data = DataDir(options.data)
    utterances = choose(data, options)
    lists = [path for path in (options.utt_list, options.spk_list) if path]
    with output_of(options, options.out, [*subsets.table_files(data), *lists]) as out:
        subsets.write_subset(data, out, utterances)
        carry(data, out, of_part=True)
    log.info(f"{options.out}: {len(utterances)} of {len(data.utterances)} utterances")


if __name__ == "__main__":
    run_step(SubsetDataDir, main, __doc__)
