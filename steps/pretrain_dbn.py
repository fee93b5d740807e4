#!/usr/bin/env python3
"""Pretrain a deep belief net, a stack of restricted Boltzmann machines, on features without transcripts, on
several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq}
Writes OUT/final.dbn (RBMs, normalisation), input.json, feature_origin.json, rbm1/metrics.jsonl,
       rbm2/metrics.jsonl, ..., log/pretrain.log

`steps/train_dnn.py --dbn OUT` initialises a network of sigmoid units from it. To resume an interrupted
job from its last checkpoint, run the same command again; --num-ranks may differ. A job that loses a rank
continues automatically with the remaining ranks.

Example:
    steps/pretrain_dbn.py --num-ranks 2 --hidden-layers 6 --hidden-dim 2048 data/train exp/dbn
"""

from dataclasses import dataclass

from pyasr.base.cli.step import run_step
from pyasr.train.steps.dbn_step import DbnStep
from pyasr.train.steps.on_ranks import OnRanks
from pyasr.train.steps.training_step import train


@dataclass(frozen=True)
class PretrainDbn(OnRanks, DbnStep):
    pass


def main(options: PretrainDbn) -> None:
    train(options)


if __name__ == "__main__":
    run_step(PretrainDbn, main, __doc__)
