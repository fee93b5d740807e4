#!/usr/bin/env python3
"""Extract i-vectors of a data directory: one per speaker, and online i-vectors at intervals within each
utterance.

Reads  DATA/{feats.scp,utt2spk}, EXTRACTOR_DIR/{final.dubm,final.ie,input.json,feature_origin.json}, optional
       EXTRACTOR_DIR/final.mat; DATA/cmvn.scp if the extractor normalises by speaker
Writes OUT/{ivector.scp,ivector_online.scp,ivector_period} and the archives of the tables

Example:
    steps/extract_ivectors.py --nj 4 data/train exp/ivector exp/ivectors_train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.table_paths import as_named
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.feats.fit import check_features
from pyasr.feats.inputs import InputOptions, input_option_files, input_tables
from pyasr.ivector.extract_ivectors import ExtractDirOptions, IvectorExtractSpec, merge, parts_to_extract
from pyasr.ivector.ivector_extractor import EXTRACTOR_FILE
from pyasr.ivector.online_ivectors import ExtractOptions
from pyasr.ivector.ubm import UBM_FILE


@dataclass(frozen=True)
class ExtractIvectors:
    data: Path = argument("data directory with features of the kind that the extractor was trained on")
    extractor_dir: Path = argument("directory of the extractor")
    out: Path = argument("directory of the i-vectors")
    extract: ExtractOptions = group(ExtractOptions)
    directory: ExtractDirOptions = group(ExtractDirOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: ExtractIvectors) -> None:
    directory = options.extractor_dir
    inputs = [
        *input_tables(options.data, InputOptions.load(directory)),
        directory / UBM_FILE,
        directory / EXTRACTOR_FILE,
    ]
    inputs += input_option_files(directory)
    with output_of(
        options, options.out, inputs, check=lambda: check_features(options.data, directory)
    ) as out:
        spec = IvectorExtractSpec(
            options.data,
            directory,
            out,
            as_named(options.out),
            options.jobs.nj,
            options.extract,
            options.directory,
        )
        with parts_to_extract(spec):
            run_jobs(
                options.jobs,
                out / "log" / "extract.JOB.log",
                "pyasr.ivector.extract_ivectors:extract_shard",
                spec,
            )
        merge(spec)


if __name__ == "__main__":
    run_step(ExtractIvectors, main, __doc__)
