#!/usr/bin/env python3
"""Copy the alignments of clean utterances to their copies with noise and reverberation, as Kaldi's
copy_ali_dir.sh does.

Reads   DATA/{utt2spk,utt2uniq,utt2num_frames}, ALI_DIR
Writes  OUT/{ali.JOB.gz,num_jobs}, and the model and its options

    steps/copy_ali_dir.py data/train_all exp/tri3_ali exp/tri3_ali_all
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.tables.datadir import DataDir
from pyasr.hmm.align.copy_ali import copy_alignments
from pyasr.hmm.model.model_file import MODEL
from pyasr.io.int_vectors import job_archive_files


@dataclass(frozen=True)
class CopyAliDir:
    data: Path = argument(
        "data directory of the copies, with features; it may also contain the original utterances"
    )
    ali_dir: Path = argument("directory of the alignments of the original utterances")
    out: Path = argument("directory of the alignments of DATA")
    missing: SkippedOptions = group(SkippedOptions, max_missing=0.05)


def main(options: CopyAliDir) -> None:
    data, ali_dir = DataDir(options.data), options.ali_dir
    tables = [
        data.path / name
        for name in ("utt2spk", "utt2uniq", "utt2num_frames")
        if name != "utt2uniq" or data.has(name)
    ]
    with output_of(options, options.out, [*tables, ali_dir / MODEL, *job_archive_files(ali_dir)]) as out:
        num = copy_alignments(data, ali_dir, out, options.missing)
    log.info(f"{options.out}: {num} alignments")


if __name__ == "__main__":
    run_step(CopyAliDir, main, __doc__)
