#!/usr/bin/env python3
"""Repair a data directory: sort it, remove broken lines and utterances that are not in every table, rebuild
spk2utt.

Reads   DATA
Writes  DATA; the previous content is kept in DATA/.backup, as NAME, NAME.2 and so on

    utils/fix_data_dir.py data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.data.checks.repair import fix


@dataclass(frozen=True)
class FixDataDir:
    data: Path = argument("data directory")
    audio: str = option(
        "exists",
        "utterances to remove; no: none because of their audio; exists: those whose audio is "
        "missing or differs from its header; read: also those whose audio is unreadable",
        choices=("no", "exists", "read"),
    )
    prefix_speakers: bool = option(
        False, "prepend 'SPEAKER-' to the utterances whose name does not begin with their speaker"
    )


def main(options: FixDataDir) -> None:
    for sentence in fix(options.data, audio=options.audio, prefix_speakers=options.prefix_speakers) or [
        "nothing to repair"
    ]:
        log.info(sentence)


if __name__ == "__main__":
    run_step(FixDataDir, main, __doc__)
