#!/usr/bin/env python3
"""Train monophone GMMs from scratch, starting from equal alignments, as one MPI job with --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG
Writes DIR/{final.mdl,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt,input.json,feature_origin.json},
       DIR/{cmvn_opts,delta_opts,splice_opts,failed_utterances}

Example:
    steps/train_mono.py --nj 4 --boost-silence 1.25 data/train data/lang exp/mono
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.data.tables.datadir import check_split
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.align_report import MAX_MISSING, check_failed
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.graphs.transcript_ids import check_transcripts
from pyasr.hmm.model.gmm_dir import input_files
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.hmm.training.model_size import report_gaussians
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec


@dataclass(frozen=True)
class TrainMono:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory")
    dir: Path = argument("directory of the model")
    schedule: GmmScheduleOptions = group(GmmScheduleOptions, first_beam=6.0)
    align: AlignOptions = group(AlignOptions)
    update: GmmUpdateOptions = group(GmmUpdateOptions)
    inputs: InputOptions = group(InputOptions, deltas=2)
    missing: SkippedOptions = group(SkippedOptions, max_missing=MAX_MISSING)
    store: MemoryOptions = group(MemoryOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: TrainMono) -> None:
    check_split(options.data, options.jobs.nj)
    options.schedule.check()
    inputs = [
        *input_files(options.data, options.lang),
        options.lang / "topo",
        options.lang / "phones/sets.int",
    ]
    with output_of(
        options,
        options.dir,
        inputs,
        resume=True,
        may_change=("missing", "store"),
        check=lambda: check_transcripts(options.data, options.lang),
    ) as out:
        train = TrainOptions(options.schedule, options.align, options.update, options.missing, options.store)
        spec = MonoSpec(options.data, options.lang, out, train, options.inputs)
        run_ranks(
            options.jobs,
            out / "log" / "train.log",
            "pyasr.hmm.training.train_mono:train_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        check_failed(out, options.data, options.missing)
        report_gaussians(out, options.schedule)


if __name__ == "__main__":
    run_step(TrainMono, main, __doc__)
