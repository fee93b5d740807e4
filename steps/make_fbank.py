#!/usr/bin/env python3
"""Make log mel filter-bank energies of a data directory.

Reads  DATA/{wav.scp,utt2spk} and DATA/segments where there is one
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames

Example:
    steps/make_fbank.py --nj 4 --config conf/fbank.conf data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.extract import TABLES, ArchiveOptions, ExtractSpec, make_features, publish, withdraw
from pyasr.feats.options import FbankOptions


@dataclass(frozen=True)
class MakeFbank:
    data: Path = argument("data directory")
    fbank: FbankOptions = group(FbankOptions)
    archive: ArchiveOptions = group(ArchiveOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: MakeFbank) -> None:
    data, feats = options.data, options.data / "feats"
    inputs = [data / "wav.scp", data / "utt2spk", *data.glob("segments")]
    with output_of(options, feats, inputs, also=[data / name for name in TABLES]) as out:
        spec = ExtractSpec(data, out, feats.absolute(), options.jobs.nj, options.archive, fbank=options.fbank)
        make_features(spec, lambda log, function, spec: run_jobs(options.jobs, log, function, spec))
        withdraw(data)
    publish(data)


if __name__ == "__main__":
    run_step(MakeFbank, main, __doc__)
