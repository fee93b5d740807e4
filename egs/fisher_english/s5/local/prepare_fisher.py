#!/usr/bin/env python3
"""Create the data directory of Fisher English: an utterance for each line of the transcripts without
uncertain words `(( ))`.

Reads   --fisher: directories of the releases, at any depth: speech (LDC2004S13, LDC2005S13), transcripts
        (LDC2004T19, LDC2005T19)
Writes  OUT (wav.scp reco2file_and_channel segments text utt2spk spk2utt, spk2gender if the sexes of all
        speakers are known), and local/audio_NAME.txt next to it, the file of each call

    local/prepare_fisher.py --fisher /corpora/LDC2004S13:/corpora/LDC2004T19 data/all
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError
from pyasr.corpora.call_audio import write_audio_list
from pyasr.corpora.conversations import tables_of
from pyasr.corpora.counts import Published, log_table
from pyasr.corpora.discs import places_in
from pyasr.corpora.fisher.fisher_calls import find_calls
from pyasr.corpora.fisher.fisher_speakers import read_callers
from pyasr.corpora.fisher.utterances import Taken, take
from pyasr.data.tables.datadir import write_data_dir

PUBLISHED = [
    Published("recordings", (2 * 11_696,)),
    Published("utterances", (1_600_000,), 0.05),
    Published("hours", (1915,)),
]


@dataclass(frozen=True)
class PrepareFisher:
    out: Path = argument("data directory to create")
    fisher: str = option("", "directories of the discs, separated by colons")
    speakers: str = option(
        "pin", "speakers; pin: callers (PIN and sex); side: sides of calls", choices=("pin", "side")
    )


def main(options: PrepareFisher) -> None:
    calls = find_calls(places_in(options.fisher))
    listing = write_audio_list(options.out.parent, options.out.name, calls.audio)
    inputs = [
        listing,
        *calls.transcripts.values(),
        *(path for paths in calls.tables.values() for path in paths),
    ]
    with output_of(options, options.out, inputs) as out:
        callers = read_callers(calls.tables)
        taken = take(calls, callers if options.speakers == "pin" else {})
        taken.log()
        if not taken.utterances:
            raise UserError(f"{options.fisher}: no usable utterance; see the warnings above")
        write_data_dir(out, tables_of(taken.utterances, calls.audio, sexes_of(taken, callers)))
    log_table(options.out, PUBLISHED)


def sexes_of(taken: Taken, callers: dict) -> dict[str, str]:
    """{speaker: m or f}; empty if one is unknown, because the table spk2gender must contain all speakers."""
    known = {side: caller.sex for side, caller in callers.items() if caller.sex}
    sexes = {one.speaker: known[one.side] for one in taken.utterances if one.side in known}
    if unknown := sorted({one.speaker for one in taken.utterances} - sexes.keys()):
        log.warning(
            f"no spk2gender: the sexes of {len(unknown)} speakers are not in the tables, such as {unknown[0]}"
        )
        return {}
    return sexes


if __name__ == "__main__":
    run_step(PrepareFisher, main, __doc__)
