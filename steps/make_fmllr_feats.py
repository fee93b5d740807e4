#!/usr/bin/env python3
"""Create a data directory with the features of a GMM system, transformed by its speakers' fMLLR transforms,
as input of networks.

Reads  DATA, MODEL_DIR/{final.mat,input.json,feature_origin.json}, TRANSFORM_DIR/{trans.JOB,num_jobs}
Writes OUT, a data directory: feats (archives and logs), feats.scp, utt2num_frames, and copies of DATA's other
       tables

The features are already normalised: train on them without normalisation (`steps/train_dnn.py --cmvn none`).

Example:
    steps/make_fmllr_feats.py --nj 4 --transform-dir exp/tri3/decode_test data/test exp/tri3 data/test_fmllr
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.table_paths import as_named
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.parts.job_parts import parts_of_jobs
from pyasr.data.tables.datadir import split
from pyasr.feats.extraction.transformed import TransformSpec, copied_files, write_tables
from pyasr.feats.fit import check_splicing
from pyasr.feats.inputs import INPUT_TABLES, input_option_files
from pyasr.feats.origin import check_origin
from pyasr.feats.transforms import transform_files
from pyasr.hmm.transforms.unadapted import warn_of_unadapted


@dataclass(frozen=True)
class MakeFmllrFeats:
    data: Path = argument("data directory with features")
    model_dir: Path = argument("directory of the GMM system, or of its alignments")
    out: Path = argument("new data directory")
    transform_dir: Path | None = option(
        None, "directory of the speakers' transforms; none: MODEL_DIR", heading="input"
    )
    missing: SkippedOptions = group(SkippedOptions)
    compress: bool = option(
        False, "store one byte per value (Kaldi's compressed matrices) instead of float32", heading="output"
    )
    jobs: JobOptions = group(JobOptions)


def main(options: MakeFmllrFeats) -> None:
    transform_dir = options.transform_dir or options.model_dir
    check_origin(options.data, options.model_dir)
    features = [options.data / name for name in ("feats.scp", "cmvn.scp") if (options.data / name).exists()]
    inputs = [
        *features,
        *copied_files(options.data),
        *input_option_files(options.model_dir),
        *transform_files(transform_dir),
    ]
    with output_of(
        options, options.out, inputs, check=lambda: check_splicing(options.data, options.model_dir)
    ) as out:
        (out / "feats").mkdir()
        spec = TransformSpec(
            options.data,
            options.model_dir,
            transform_dir,
            out,
            as_named(options.out),
            options.jobs.nj,
            options.compress,
            options.missing,
        )
        with parts_of_jobs(options.data, out, split(options.data, options.jobs.nj), INPUT_TABLES):
            run_jobs(
                options.jobs,
                out / "log" / "transform.JOB.log",
                "pyasr.feats.extraction.transformed:transform_shard",
                spec,
            )
        write_tables(spec)
        warn_of_unadapted(options.data, transform_dir)


if __name__ == "__main__":
    run_step(MakeFmllrFeats, main, __doc__)
