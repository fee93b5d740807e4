#!/usr/bin/env python3
"""Train a feed-forward acoustic model, or the network of --network, with frame-level cross-entropy on
alignments, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq}, LANG/phones.txt,
       ALI_DIR/{ali.*.gz,num_jobs,final.mdl,tree,phones.txt}; with --network the file of layers; with --dbn
       DBN_DIR also DBN_DIR/{final.dbn,input.json}; with --vtlp DATA/feats/options.json; with --teacher DIR
       also DIR/{final.nnet,input.json,feature_origin.json,tree}, and with --teacher-data its feats.scp,
       cmvn.scp, utt2spk
Writes OUT/final.nnet (network, normalisation, priors), final.mdl and tree (transition model and tree of
       ALI_DIR), input.json, feature_origin.json, phones.txt, metrics.jsonl, tensorboard/, log/train.log;
       frame_subsampling_factor if the network subsamples frames; with --save-learner OUT/learner, another
       model directory

ALI_DIR may be written by Kaldi, such as exp/tri4_ali. To resume an interrupted job from its last checkpoint,
run the same command again; --num-ranks may differ. A job that loses a rank continues automatically with the
remaining ranks.

Example:
    steps/train_dnn.py --num-ranks 2 --hidden-layers 4 --schedule newbob data/train_hires data/lang \\
        exp/tri1_ali exp/dnn
"""

from dataclasses import dataclass

from pyasr.base.cli.step import run_step
from pyasr.train.steps.dnn_step import DnnStep
from pyasr.train.steps.on_ranks import OnRanks
from pyasr.train.steps.training_step import train


@dataclass(frozen=True)
class TrainDnn(OnRanks, DnnStep):
    """Training on MPI ranks."""


def main(options: TrainDnn) -> None:
    train(options)


if __name__ == "__main__":
    run_step(TrainDnn, main, __doc__)
