#!/usr/bin/env python3
"""Compute the cepstral mean and variance statistics of each speaker.

Reads  DATA/{feats.scp,utt2spk}
Writes DATA/cmvn (archive), DATA/cmvn.scp; a cmvn.scp from elsewhere is moved to DATA/.backup

By default, one process reads all features. --nj splits the speakers over several jobs; the result is the
same.

Example:
    steps/compute_cmvn.py data/train
    steps/compute_cmvn.py --nj 32 --cmd "slurm.pl --mem 2G" data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.table_paths import as_named
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.checks.backup import set_aside
from pyasr.feats.extraction.speaker_cmvn import publish, write_by_jobs, write_speaker_cmvn


@dataclass(frozen=True)
class ComputeCmvn:
    data: Path = argument("data directory")
    jobs: JobOptions = group(JobOptions, nj=1)


def main(options: ComputeCmvn) -> None:
    data, cmvn = options.data, options.data / "cmvn"
    inputs = [data / "feats.scp", data / "utt2spk", *data.glob("feats")]
    with output_of(options, cmvn, inputs, also=[data / "cmvn.scp"]) as out:
        if options.jobs == ComputeCmvn(data).jobs:
            write_speaker_cmvn(data, out, as_named(cmvn))
        else:
            write_by_jobs(data, out, as_named(cmvn), options.jobs, run_jobs)
        set_aside(data / "cmvn.scp", cmvn)
        (data / "cmvn.scp").unlink(missing_ok=True)
    publish(data)


if __name__ == "__main__":
    run_step(ComputeCmvn, main, __doc__)
