#!/usr/bin/env python3
"""Create a data directory with the concatenated features of several data directories and, optionally, vectors
such as i-vectors.

Reads  STREAMS/{feats.scp,utt2spk}, with --cmvn speaker also their cmvn.scp; the other tables of the first
       directory; the table --vectors and ivector_period in its directory
Writes OUT, a data directory: feats (archives and logs), feats.scp, utt2num_frames, and copies of the first
       directory's other tables

Each stream is normalised as given by --cmvn: train on the result with --cmvn none.

Example (40 fMLLR features, 40 log mel energies with first and second derivatives, an i-vector of 40
dimensions):
    steps/paste_feats.py --nj 4 --cmvn "none speaker" --deltas "0 2" \\
        --vectors exp/ivectors_train/ivector_online.scp data/train_pasted data/train_fmllr data/train_fbank
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.table_paths import as_named
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.tables.datadir import check_split
from pyasr.feats.extraction.pasted import (
    PasteOptions,
    PasteSpec,
    StreamOptions,
    input_files,
    parts_of_streams,
)
from pyasr.feats.extraction.transformed import write_tables


@dataclass(frozen=True)
class PasteFeats:
    out: Path = argument("new data directory")
    streams: tuple[Path, ...] = argument(
        "data directories with features; the other tables are copied from the first", many=True
    )
    each: StreamOptions = group(StreamOptions)
    paste: PasteOptions = group(PasteOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: PasteFeats) -> None:
    inputs = options.each.inputs(len(options.streams))
    check_split(options.streams[0], options.jobs.nj)
    with output_of(options, options.out, input_files(options.streams, inputs, options.paste)) as out:
        (out / "feats").mkdir()
        spec = PasteSpec(options.streams, inputs, options.paste, out, as_named(options.out), options.jobs.nj)
        with parts_of_streams(spec):
            run_jobs(
                options.jobs, out / "log" / "paste.JOB.log", "pyasr.feats.extraction.pasted:paste_shard", spec
            )
        write_tables(spec)


if __name__ == "__main__":
    run_step(PasteFeats, main, __doc__)
