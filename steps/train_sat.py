#!/usr/bin/env python3
"""Train triphone GMMs on features that fMLLR adapts to each speaker (SAT), as one MPI job with --nj ranks.

The features are those of ALI_DIR, including its final.mat, if any. The first transforms are those of ALI_DIR;
if it has none, they are estimated from its alignments and model.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG,
       ALI_DIR/{final.mdl,ali.JOB.gz,num_jobs,input.json,feature_origin.json,final.mat,trans.JOB}
Writes DIR/{final.mdl,final.alimdl,final.mat,trans.JOB,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt},
       DIR/{input.json,feature_origin.json,cmvn_opts,delta_opts,splice_opts,failed_utterances}

Example:
    steps/train_sat.py --nj 4 --num-leaves 2000 --num-gauss 20000 data/train data/lang exp/tri2_ali exp/tri3
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.feats.fit import check_features
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.align_report import check_failed
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.training.model_size import report_gaussians, report_leaves
from pyasr.hmm.training.train_gmm import GmmScheduleOptions
from pyasr.hmm.training.train_sat import SatOptions, SatSpec
from pyasr.hmm.training.train_triphones import TRIPHONE_SCHEDULE, TreeOptions, TriphoneStep
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.hmm.transforms.unadapted import warn_of_unadapted


@dataclass(frozen=True)
class TrainSat(TriphoneStep):
    tree: TreeOptions = group(TreeOptions, num_leaves=2000)
    schedule: GmmScheduleOptions = group(GmmScheduleOptions, num_gauss=20000, **TRIPHONE_SCHEDULE)
    sat: SatOptions = group(SatOptions)
    fmllr: FmllrOptions = group(FmllrOptions)
    update: GmmUpdateOptions = group(GmmUpdateOptions, power=0.2)

    def check_inputs(self) -> None:
        super().check_inputs()
        check_features(self.data, self.ali_dir)


def main(options: TrainSat) -> None:
    options.check()
    options.sat.check()
    with output_of(
        options,
        options.dir,
        options.input_files,
        resume=True,
        may_change=("missing", "store"),
        check=options.check_inputs,
    ) as out:
        spec = SatSpec(options.spec(out, InputOptions.load(options.ali_dir)), options.sat, options.fmllr)
        run_ranks(
            options.jobs,
            out / "log" / "train.log",
            "pyasr.hmm.training.train_sat:train_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        check_failed(out, options.data, options.missing)
        report_leaves(out, options.tree)
        report_gaussians(out, options.schedule)
        warn_of_unadapted(options.data, out, options.fmllr)


if __name__ == "__main__":
    run_step(TrainSat, main, __doc__)
