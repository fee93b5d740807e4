#!/usr/bin/env python3
"""Train an i-vector extractor and its background model, as one MPI job with --nj ranks.

Reads  DATA/{feats.scp,utt2spk}; with --cmvn speaker DATA/cmvn.scp; with --model-dir
       MODEL_DIR/{final.mat,input.json}
Writes DIR/{final.dubm,final.ie,input.json,feature_origin.json}; final.mat if MODEL_DIR has one

Example:
    steps/train_ivector_extractor.py --nj 4 --config conf/ivector.conf --model-dir exp/tri2 data/train \\
        exp/ivector
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.option_uses import unless_set
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.data.tables.datadir import check_split
from pyasr.feats.inputs import InputOptions, input_option_files, input_tables
from pyasr.feats.origin import keep_origin
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.ivector.em import EmOptions
from pyasr.ivector.features import write_inputs
from pyasr.ivector.train import IvectorSpec, StatsOptions
from pyasr.ivector.ubm import UbmOptions, report_size

_OF_NO_MODEL = dict.fromkeys(("deltas", "splice_left", "splice_right"), unless_set("model-dir"))


@dataclass(frozen=True)
class TrainIvectorExtractor:
    data: Path = argument("data directory with features")
    dir: Path = argument("output directory of the extractor")
    model_dir: Path | None = option(
        None,
        "model directory (LDA+MLLT) whose matrix, splicing and derivatives are used; none: those "
        "of the options",
        heading="input",
    )
    inputs: InputOptions = group(InputOptions, only=_OF_NO_MODEL, cmvn="sliding", deltas=2)
    ubm: UbmOptions = group(UbmOptions)
    stats: StatsOptions = group(StatsOptions)
    em: EmOptions = group(EmOptions)
    store: MemoryOptions = group(MemoryOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: TrainIvectorExtractor) -> None:
    options.ubm.check()
    check_split(options.data, options.jobs.nj)
    tables = input_tables(options.data, options.inputs)
    of_model = input_option_files(options.model_dir) if options.model_dir else []
    with output_of(options, options.dir, [*tables, *of_model]) as out:
        write_inputs(out, options.inputs, options.model_dir)
        keep_origin(out, options.data)
        spec = IvectorSpec(options.data, out, options.ubm, options.stats, options.em, options.store)
        run_ranks(
            options.jobs,
            out / "log" / "train.log",
            "pyasr.ivector.train:train_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        report_size(out, options.ubm)


if __name__ == "__main__":
    run_step(TrainIvectorExtractor, main, __doc__)
