#!/usr/bin/env python3
"""Train triphone GMMs on features with deltas, from the alignments of an earlier system, as one MPI job with
--nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, ALI_DIR/{final.mdl,ali.JOB.gz,num_jobs}
Writes DIR/{final.mdl,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt,input.json,feature_origin.json},
       DIR/{cmvn_opts,delta_opts,splice_opts,failed_utterances}

Example:
    steps/train_deltas.py --nj 4 --num-leaves 1200 --num-gauss 9000 data/train data/lang exp/mono_ali exp/tri1
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.align_report import check_failed
from pyasr.hmm.training.model_size import report_gaussians, report_leaves
from pyasr.hmm.training.train_gmm import GmmScheduleOptions
from pyasr.hmm.training.train_triphones import TRIPHONE_SCHEDULE, TriphoneStep


@dataclass(frozen=True)
class TrainDeltas(TriphoneStep):
    schedule: GmmScheduleOptions = group(GmmScheduleOptions, num_gauss=9000, **TRIPHONE_SCHEDULE)
    inputs: InputOptions = group(InputOptions, deltas=2)


def main(options: TrainDeltas) -> None:
    options.check()
    with output_of(
        options,
        options.dir,
        options.input_files,
        resume=True,
        may_change=("missing", "store"),
        check=options.check_inputs,
    ) as out:
        spec = options.spec(out, options.inputs)
        run_ranks(
            options.jobs,
            out / "log" / "train.log",
            "pyasr.hmm.training.train_deltas:train_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        check_failed(out, options.data, options.missing)
        report_leaves(out, options.tree)
        report_gaussians(out, options.schedule)


if __name__ == "__main__":
    run_step(TrainDeltas, main, __doc__)
