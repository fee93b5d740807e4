#!/usr/bin/env python3
"""Make a data directory of lhotse's manifests of recordings and supervisions.

Reads   RECORDINGS, SUPERVISIONS (JSON lines, plain or gzipped)
Writes  OUT/{wav.scp,reco2dur,segments,utt2spk,spk2utt}, and {text,spk2gender} where the manifests tell them

Every supervision is an utterance; where some have a text, those without are left out. All that is wrong is listed with its fix, and then
nothing is made.

    utils/import_lhotse.py recordings.jsonl.gz supervisions.jsonl.gz data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError, printable
from pyasr.base.options import argument, option
from pyasr.base.step import output_of, run_step
from pyasr.data.datadir import DataDir
from pyasr.intake.lhotse import read_manifests, save_data_dir


@dataclass(frozen=True)
class ImportLhotse:
    recordings: Path = argument("manifest of recordings")
    supervisions: Path = argument("manifest of supervisions")
    out: Path = argument("data directory to make")
    prefix_speakers: bool = option(True, "name utterances SPEAKER-NAME, so that they sort as speakers do")


def main(options: ImportLhotse) -> None:
    with output_of(options, options.out, [options.recordings, options.supervisions]) as out:
        found = read_manifests(options.recordings, options.supervisions, options.prefix_speakers)
        for problem in found.problems:
            print(printable(problem))
        if found.problems or not found.utterances:
            told = f"{len(found.problems)} problem(s) and {len(found.utterances)} utterances"
            raise UserError(f"{options.supervisions}: {told}; nothing is made")
        save_data_dir(found, out)
        num_taken = len(DataDir(out).utterances)
    log.info(f"{options.out}: {num_taken} utterances, {len(found.utterances) - num_taken} without a text left out")


if __name__ == "__main__":
    run_step(ImportLhotse, main, __doc__)
