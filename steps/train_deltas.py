#!/usr/bin/env python3
"""Train triphone GMMs on features with deltas, from the alignments of an earlier system, as one MPI job with --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, ALI_DIR/{final.mdl,ali.JOB.gz,num_jobs}
Writes DIR/{final.mdl,tree,ali.JOB.gz,final.occs,num_jobs,phones.txt,input.json}

Example:
    steps/train_deltas.py --nj 4 --num-leaves 1200 --num-gauss 9000 data/train data/lang exp/mono_ali exp/tri1
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
from pyasr.hmm.train_triphones import TreeOptions, TriphoneSpec
from pyasr.hmm.viterbi import AlignOptions


@dataclass(frozen=True)
class TrainDeltas:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory")
    ali_dir: Path = argument("alignments of the data directory")
    dir: Path = argument("directory of the model")
    tree: TreeOptions = group(TreeOptions)
    schedule: ScheduleOptions = group(ScheduleOptions, num_iters=35, max_iter_inc=25, num_gauss=9000, realign_iters="10 20 30")
    align: AlignOptions = group(AlignOptions)
    update: GmmUpdateOptions = group(GmmUpdateOptions)
    inputs: InputOptions = group(InputOptions, deltas=2)
    jobs: JobOptions = group(JobOptions)


def main(options: TrainDeltas) -> None:
    with output_of(options, options.dir, training_files(options.data, options.lang, options.ali_dir), resume=True) as out:
        train = TrainOptions(options.schedule, options.align, options.update)
        spec = TriphoneSpec(options.data, options.lang, options.ali_dir, out, options.tree, train, options.inputs)
        run_ranks(options.jobs, out / "log" / "train.log", "pyasr.hmm.train_deltas:train_rank", spec, num_ranks=options.jobs.nj)


if __name__ == "__main__":
    run_step(TrainDeltas, main, __doc__)
