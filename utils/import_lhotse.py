#!/usr/bin/env python3
"""Convert lhotse manifests to a data directory: recordings and supervisions, or cuts.

Reads   MANIFEST...: recordings and supervisions, or cuts (JSON lines or a JSON array, plain or compressed)
Writes  OUT/{wav.scp,reco2dur,segments,utt2spk,spk2utt}; {text,spk2gender} if the manifests contain them;
        reco2file_and_channel if recordings are channels of one file

Every supervision is an utterance. If some have a text, those without one are skipped; an empty text counts as
a text. If the manifests contain problems, each is listed with its fix, and nothing is written.

    utils/import_lhotse.py recordings.jsonl.gz supervisions.jsonl.gz data/train
    utils/import_lhotse.py cuts.jsonl.gz data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError, printable
from pyasr.data.tables.datadir import DataDir
from pyasr.intake.lhotse import read_cuts, read_manifests, save_data_dir


@dataclass(frozen=True)
class ImportLhotse:
    manifests: tuple[Path, ...] = argument(
        "manifests of recordings and of supervisions, or one manifest of cuts; then the data "
        "directory to write",
        many=True,
        name="MANIFEST... OUT",
    )
    prefix_speakers: bool = option(
        True, "name utterances SPEAKER-NAME, so that they sort in the order of their speakers"
    )


def main(options: ImportLhotse) -> None:
    *manifests, out_dir = options.manifests
    if len(manifests) not in (1, 2):
        raise UserError(
            f"{len(options.manifests)} path(s) given; give RECORDINGS SUPERVISIONS OUT, or CUTS OUT"
        )
    with output_of(options, out_dir, manifests) as out:
        if len(manifests) == 1:
            found = read_cuts(manifests[0], options.prefix_speakers)
        else:
            found = read_manifests(manifests[0], manifests[1], options.prefix_speakers)
        for problem in found.problems:
            print(printable(problem))
        for note in found.notes:
            log.info(printable(note))
        if found.problems or not found.utterances:
            fault = f"{len(found.problems)} problem(s) and {len(found.utterances)} utterances"
            raise UserError(f"{manifests[-1]}: {fault}; nothing was written")
        save_data_dir(found, out)
        num_taken = len(DataDir(out).utterances)
    log.info(f"{out_dir}: {num_taken} utterances, {len(found.utterances) - num_taken} without a text skipped")


if __name__ == "__main__":
    run_step(ImportLhotse, main, __doc__)
