#!/usr/bin/env python3
"""Detect speech in long recordings by energy, and create a data directory of the segments, without
transcripts.

Reads   DATA/{wav.scp,utt2spk} and the audio; if they exist,
        DATA/{segments,reco2file_and_channel,reco2speed,reco2volume,reco2distortion} and the files that the
        last one names; all other tables of DATA except text and feature tables
Writes  OUT; DATA/.recordings (used to detect that a recording was replaced)

    utils/segment_data_dir.py --max-segment-s 15 data/talks data/talks_segmented
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.audio.audio_reading import ONLY
from pyasr.data.audio.channels import named_channels
from pyasr.data.augmentation.vad import VadOptions, segments_of
from pyasr.data.checks.recording_prints import recording_prints
from pyasr.data.parts import subsets
from pyasr.data.parts.side_files import carry
from pyasr.data.parts.subsegments import subsegmented
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class SegmentDataDir:
    data: Path = argument(
        "data directory whose utterances (whole recordings or segments) are searched for speech"
    )
    out: Path = argument("data directory to write")
    channel: int = option(
        ONLY,
        "channel of each recording to search for speech: 0 is the left or only one; -1: the one in "
        "reco2file_and_channel, else 0",
        minimum=ONLY,
        heading="audio",
    )
    vad: VadOptions = group(VadOptions)


def main(options: SegmentDataDir) -> None:
    data = DataDir(options.data)
    data.check_commands()
    tables = subsets.table_files(data, with_features=False)
    is_named = options.channel == ONLY and bool(named_channels(data))
    known = options if is_named else replace(options, channel=max(options.channel, 0))
    with (
        recording_prints(data.path, options.channel) as audio,
        output_of(known, options.out, tables + audio) as out,
    ):
        parts = segments_of(data, options.vad, options.channel)
        subsets.write_all(out, subsegmented(data, parts, with_text=False))
        carry(data, out, with_features=False)
    silent = [utt for utt, found in parts.items() if not found]
    if silent:
        log.warning(
            f"no speech found in {len(silent)} of {len(parts)} utterances: "
            f"{' '.join(silent[:3])}{' ...' if silent[3:] else ''}"
        )
    found_s = sum(part.end_s - part.begin_s for found in parts.values() for part in found)
    log.info(
        f"{options.out}: {sum(map(len, parts.values()))} segments, {found_s:.0f} s, of {len(parts)} "
        "utterances"
    )


if __name__ == "__main__":
    run_step(SegmentDataDir, main, __doc__)
