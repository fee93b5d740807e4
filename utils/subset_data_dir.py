#!/usr/bin/env python3
"""Make a data directory of some of the utterances of another. Give exactly one way of choosing them.

If DATA has fewer than N utterances, all are taken, with a warning, so that recipes run on smaller corpora.

Reads   DATA, --utt-list or --spk-list
Writes  OUT

    utils/subset_data_dir.py --shortest 500 data/train data/train_500short
"""

from collections.abc import Callable
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


def way_of_choosing(options: SubsetDataDir) -> Callable[[DataDir], list[str]]:
    """The function that chooses the utterances of a data directory."""
    ways = {
        "first": subsets.first,
        "all_but_first": subsets.all_but_first,
        "last": subsets.last,
        "shortest": subsets.shortest,
        "random": lambda data, value: subsets.random_choice(data, value, options.seed),
        "per_spk": subsets.per_speaker,
        "speakers": subsets.of_speakers,
        "max_same_text": lambda data, value: subsets.without_repetitions(data, value, options.seed),
        "utt_list": lambda data, value: subsets.listed(value),
        "spk_list": lambda data, value: subsets.utterances_of(data, subsets.listed(value)),
    }
    given = [name for name in ways if getattr(options, name) is not None]
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise UserError(f"{len(given)} ways of choosing utterances are given; give one of {flags}")
    return lambda data: ways[given[0]](data, getattr(options, given[0]))


def main(options: SubsetDataDir) -> None:
    data, choose, utterances = DataDir(options.data), way_of_choosing(options), list[str]()
    lists = [path for path in (options.utt_list, options.spk_list) if path]
    inputs = [*subsets.table_files(data), *lists]
    with output_of(options, options.out, inputs, check=lambda: utterances.extend(choose(data))) as out:
        subsets.write_subset(data, out, utterances)
        carry(data, out, of_part=True)
    log.info(f"{options.out}: {len(utterances)} of {len(data.utt2spk)} utterances")


if __name__ == "__main__":
    run_step(SubsetDataDir, main, __doc__)
