#!/usr/bin/env python3
"""Train a network over time with lattice-free MMI (LF-MMI) on phone alignments, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq},
       ALI_DIR/{ali.*.gz,num_jobs,final.mdl,phones.txt},
       TREE_DIR/{tree,final.mdl,frame_subsampling_factor,phones.txt}, the file of layers that --network names
Writes OUT/final.nnet (network, normalisation), final.mdl, tree, frame_subsampling_factor, input.json,
       feature_origin.json, phones.txt, phone_lm.fst (of the denominator), metrics.jsonl, tensorboard/,
       log/train.log

ALI_DIR contains alignments of DATA and may be written by Kaldi. steps/build_chain_tree.py writes TREE_DIR,
also from other data. Build decoding graphs with `utils/make_graph.py --self-loop-scale 1.0`
(docs/networks/lfmmi.md has the whole recipe). To resume an interrupted job from its last checkpoint, run the
same command again; --num-ranks may differ. A job that loses a rank continues automatically with the remaining
ranks.

Example:
    steps/train_lfmmi.py --num-ranks 2 --network conf/network/tdnn_chain.net data/train_fmllr exp/tri3_ali \\
        exp/chain/tree exp/chain/tdnn
"""

from dataclasses import dataclass

from pyasr.base.cli.step import run_step
from pyasr.train.steps.lfmmi_step import LfMmiStep
from pyasr.train.steps.on_ranks import OnRanks
from pyasr.train.steps.training_step import train


@dataclass(frozen=True)
class TrainLfMmi(OnRanks, LfMmiStep):
    pass


def main(options: TrainLfMmi) -> None:
    train(options)


if __name__ == "__main__":
    run_step(TrainLfMmi, main, __doc__)
