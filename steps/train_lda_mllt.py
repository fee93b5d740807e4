#!/usr/bin/env python3
"""Train triphone GMMs on spliced frames with LDA and MLLT, from the alignments of an earlier system, as one MPI job with --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, ALI_DIR/{final.mdl,ali.JOB.gz,num_jobs}
Writes DIR/{final.mdl,final.mat,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt,input.json,failed_utterances}

Example:
    steps/train_lda_mllt.py --nj 4 --num-leaves 1800 --num-gauss 15000 data/train data/lang exp/tri1_ali exp/tri2
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.gmm_dir import training_files
from pyasr.hmm.gmm_update import GmmUpdateOptions
from pyasr.hmm.train_gmm import ScheduleOptions, TrainOptions
from pyasr.hmm.train_lda_mllt import LdaMlltOptions, LdaMlltSpec
from pyasr.hmm.train_triphones import TreeOptions, TriphoneSpec
from pyasr.hmm.viterbi import AlignOptions


@dataclass(frozen=True)
class TrainLdaMllt:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory")
    ali_dir: Path = argument("alignments of the data directory")
    dir: Path = argument("directory of the model")
    tree: TreeOptions = group(TreeOptions, num_leaves=1800)
    schedule: ScheduleOptions = group(ScheduleOptions, num_iters=35, max_iter_inc=25, num_gauss=15000, realign_iters="10 20 30")
    lda: LdaMlltOptions = group(LdaMlltOptions)
    align: AlignOptions = group(AlignOptions)
    update: GmmUpdateOptions = group(GmmUpdateOptions)
    inputs: InputOptions = group(InputOptions, splice_left=3, splice_right=3)
    jobs: JobOptions = group(JobOptions)


def main(options: TrainLdaMllt) -> None:
    with output_of(options, options.dir, training_files(options.data, options.lang, options.ali_dir), resume=True) as out:
        train = TrainOptions(options.schedule, options.align, options.update)
        triphones = TriphoneSpec(options.data, options.lang, options.ali_dir, out, options.tree, train, options.inputs)
        spec = LdaMlltSpec(triphones, options.lda)
        run_ranks(options.jobs, out / "log" / "train.log", "pyasr.hmm.train_lda_mllt:train_rank", spec, num_ranks=options.jobs.nj)


if __name__ == "__main__":
    run_step(TrainLdaMllt, main, __doc__)
