#!/usr/bin/env python3
"""Create a data directory with a subset of the utterances of another. Give exactly one selection option.

If DATA has fewer than N utterances, all are selected, with a warning, so that recipes run on smaller corpora.

Reads   DATA, --utt-list or --spk-list
Writes  OUT

    utils/subset_data_dir.py --shortest 500 data/train data/train_500short
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.option_uses import any_of, if_set
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError
from pyasr.data.parts import subsets
from pyasr.data.parts.side_files import carry
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class SubsetDataDir:
    data: Path = argument("data directory")
    out: Path = argument("data directory to write")
    first: int | None = option(
        None, "number of utterances, from the beginning", minimum=1, heading="selection by number"
    )
    all_but_first: int | None = option(
        None,
        "number of utterances to skip at the beginning; all others are selected",
        minimum=1,
        heading="selection by number",
    )
    last: int | None = option(
        None, "number of utterances, from the end", minimum=1, heading="selection by number"
    )
    shortest: int | None = option(
        None, "number of utterances, the shortest of all", minimum=1, heading="selection by number"
    )
    random: int | None = option(
        None, "number of utterances, drawn at random", minimum=1, heading="selection by number"
    )
    per_spk: int | None = option(
        None,
        "maximum number of utterances per speaker",
        minimum=1,
        heading="selection by speaker or transcript",
    )
    speakers: int | None = option(
        None,
        "minimum number of utterances; whole speakers are added until it is reached",
        minimum=1,
        heading="selection by speaker or transcript",
    )
    max_same_text: int | None = option(
        None,
        "maximum number of utterances per transcript, selected at random, as in Kaldi's remove_dup_utts.sh",
        minimum=1,
        heading="selection by speaker or transcript",
    )
    utt_list: Path | None = option(
        None, "file that lists the utterances to select", heading="selection by list"
    )
    spk_list: Path | None = option(
        None, "file that lists the speakers to select", heading="selection by list"
    )
    seed: int = option(
        0,
        "seed of the random selection",
        only=any_of(if_set("random"), if_set("max-same-text")),
        heading="selection by number",
    )


def way_of_choosing(options: SubsetDataDir) -> Callable[[DataDir], Sequence[str]]:
    """The function that selects the utterances of a data directory."""
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
        raise UserError(f"{len(given)} selection options are given; give exactly one of {flags}")
    return lambda data: ways[given[0]](data, getattr(options, given[0]))


def main(options: SubsetDataDir) -> None:
    data, choose, chosen = DataDir(options.data), way_of_choosing(options), list[Sequence[str]]()
    lists = [path for path in (options.utt_list, options.spk_list) if path]
    inputs = [*subsets.table_files(data), *lists]
    with output_of(options, options.out, inputs, check=lambda: chosen.append(choose(data))) as out:
        subsets.write_subset(data, out, *chosen)
        carry(data, out, of_part=True)
    log.info(f"{options.out}: {sum(map(len, chosen))} of {len(data.utt2spk)} utterances")


if __name__ == "__main__":
    run_step(SubsetDataDir, main, __doc__)
