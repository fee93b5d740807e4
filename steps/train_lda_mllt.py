#!/usr/bin/env python3
"""Train triphone GMMs on spliced frames with LDA and MLLT, from the alignments of an earlier system, as one
MPI job with --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, ALI_DIR/{final.mdl,ali.JOB.gz,num_jobs}
Writes DIR/{final.mdl,final.mat,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt,input.json},
       DIR/{feature_origin.json,cmvn_opts,delta_opts,splice_opts,failed_utterances}

Example:
    steps/train_lda_mllt.py --nj 4 --num-leaves 1800 --num-gauss 15000 data/train data/lang exp/tri1_ali \\
        exp/tri2
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.align_report import check_failed
from pyasr.hmm.training.model_size import report_gaussians, report_leaves
from pyasr.hmm.training.train_gmm import GmmScheduleOptions
from pyasr.hmm.training.train_lda_mllt import LdaMlltOptions, LdaMlltSpec
from pyasr.hmm.training.train_triphones import TRIPHONE_SCHEDULE, TreeOptions, TriphoneStep


@dataclass(frozen=True)
class TrainLdaMllt(TriphoneStep):
    tree: TreeOptions = group(TreeOptions, num_leaves=1800)
    schedule: GmmScheduleOptions = group(GmmScheduleOptions, num_gauss=15000, **TRIPHONE_SCHEDULE)
    lda: LdaMlltOptions = group(LdaMlltOptions)
    inputs: InputOptions = group(InputOptions, splice_left=4, splice_right=4)


def main(options: TrainLdaMllt) -> None:
    options.check()
    options.lda.check()
    with output_of(
        options,
        options.dir,
        options.input_files,
        resume=True,
        may_change=("missing", "store"),
        check=options.check_inputs,
    ) as out:
        spec = LdaMlltSpec(options.spec(out, options.inputs), options.lda)
        run_ranks(
            options.jobs,
            out / "log" / "train.log",
            "pyasr.hmm.training.train_lda_mllt:train_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        check_failed(out, options.data, options.missing)
        report_leaves(out, options.tree)
        report_gaussians(out, options.schedule)


if __name__ == "__main__":
    run_step(TrainLdaMllt, main, __doc__)
