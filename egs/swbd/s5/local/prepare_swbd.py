#!/usr/bin/env python3
"""Create the data directory of Switchboard-1 Release 2 (LDC97S62) with Mississippi State's transcripts.

Reads   --swbd: the discs in any layout, sw0NNNN.sph in any folders; --transcripts: swb_ms98_transcriptions or
        switchboard_word_alignments.tar.gz, unless the discs contain them; --docs: conv_tab.csv and
        caller_tab.csv, if they exist
Writes  DATA/train (wav.scp reco2file_and_channel segments text utt2spk spk2utt, spk2gender if the sexes of
        all speakers are known), DATA/local/audio_swbd.txt (the file of each call)

    local/prepare_swbd.py --swbd /corpora/LDC97S62 --transcripts /corpora/swb_ms98_transcriptions data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import make_part, run_step
from pyasr.corpora.call_audio import write_audio_list
from pyasr.corpora.counts import log_table
from pyasr.corpora.discs import places_in
from pyasr.corpora.switchboard.swbd_calls import PUBLISHED, find_audio
from pyasr.corpora.switchboard.swbd_data import write_switchboard
from pyasr.corpora.switchboard.swbd_speakers import find_speaker_tables
from pyasr.corpora.switchboard.swbd_transcripts import find_transcripts


@dataclass(frozen=True)
class PrepareSwbd:
    data: Path = argument("directory of data directories")
    swbd: str = option("", "directories of LDC97S62, separated by colons")
    transcripts: str = option("", "directory or archive of the transcripts; empty: those on the discs")
    docs: str = option("", "directories of conv_tab.csv and caller_tab.csv; empty: the discs")
    speakers: str = option(
        "side", "speakers; side: sides of calls; caller: callers of conv_tab.csv", choices=("side", "caller")
    )


def main(options: PrepareSwbd) -> None:
    discs, by_caller = places_in(options.swbd), options.speakers == "caller"
    audio, transcripts = find_audio(discs), find_transcripts(places_in(options.transcripts) or discs)
    tables = find_speaker_tables(places_in(options.docs) or discs, by_caller)
    inputs = [write_audio_list(options.data, "swbd", audio), *transcripts, *tables.paths]
    make_part(
        options,
        options.data / "train",
        inputs,
        lambda out: write_switchboard(out, audio, transcripts, tables, by_caller),
    )
    log_table(options.data / "train", PUBLISHED)


if __name__ == "__main__":
    run_step(PrepareSwbd, main, __doc__)
