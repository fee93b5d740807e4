#!/usr/bin/env python3
"""Train a feed-forward acoustic model by cross-entropy on the alignments of another model, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames}, LANG/phones.txt, ALI_DIR/{ali.*.gz,num_jobs,final.mdl,tree,phones.txt}
       with --dbn also DBN_DIR/{final.dbn,input.json}
Writes DNN_DIR/final.nnet (network, normalisation, priors), final.mdl and tree (transition model and tree of ALI_DIR), input.json,
       phones.txt, metrics.jsonl, tensorboard/, log/train.log

ALI_DIR may be one that Kaldi made, such as exp/tri4_ali. A job that was interrupted goes on from its last checkpoint when the same
command is given again, also with another --num-ranks; one that has lost a rank does so by itself, with the ranks that are left.

Example:
    steps/train_dnn.py --num-ranks 2 --hidden-layers 4 --schedule newbob data/train_hires data/lang exp/tri1_ali exp/dnn
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import RankJobOptions
from pyasr.base.options import group, option
from pyasr.base.step import run_step
from pyasr.cluster.jobs import Recovery, run_ranks
from pyasr.parallel.strategies import usable_ranks
from pyasr.train.checkpoints import DIRECTORY, INDEX, last_place
from pyasr.train.prepare import DnnStep, staged_training
from pyasr.train.progress_bar import progress_bar


@dataclass(frozen=True)
class TrainDnn(DnnStep):
    num_ranks: int = option(2, "MPI ranks", minimum=1)
    dbn: Path | None = option(None, "directory of a DBN to start from (steps/pretrain_dbn.py)")
    jobs: RankJobOptions = group(RankJobOptions)


def main(options: TrainDnn) -> None:
    kept = dict(resume=True, precious=f"{DIRECTORY}/{INDEX}", may_change=("num_ranks",))
    with staged_training(options, options.dbn, **kept) as spec, progress_bar(spec.out):
        recovery = Recovery(options.jobs, lambda most: usable_ranks(options.training.mixing, most), lambda: last_place(spec.out))
        run_ranks(options.jobs, spec.out / "log" / "train.log", "pyasr.train.dnn:train_rank", spec, options.num_ranks, recovery)


if __name__ == "__main__":
    run_step(TrainDnn, main, __doc__)
