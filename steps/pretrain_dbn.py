#!/usr/bin/env python3
"""Pretrain a deep belief net, a stack of restricted Boltzmann machines, on features alone, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq}
Writes DBN_DIR/final.dbn (machines, normalisation), input.json, feature_origin.json, rbm1/metrics.jsonl, rbm2/metrics.jsonl, ...,
       log/pretrain.log

`steps/train_dnn.py --dbn DBN_DIR` starts a network of sigmoid units from it. A job that was interrupted goes on from its last checkpoint
when the same command is given again, also with another --num-ranks; one that has lost a rank does so by itself, with the ranks left.

Example:
    steps/pretrain_dbn.py --num-ranks 2 --hidden-layers 6 --hidden-dim 2048 data/train exp/dbn
"""

from dataclasses import dataclass

from pyasr.base.step import run_step
from pyasr.feats.origin import keep_origin
from pyasr.train.on_ranks import OnRanks, train_on_ranks, training_output
from pyasr.train.rank_reader import FEATURES_FILE, are_prepared
from pyasr.train.steps.dbn import UTTERANCES_FILE, DbnStep, PretrainSpec, prepare_utterances
from pyasr.train.targets import trained_tables

MACHINES = "rbm*/"


@dataclass(frozen=True)
class PretrainDbn(OnRanks, DbnStep):
    pass


def main(options: PretrainDbn) -> None:
    with training_output(options, trained_tables(options.data, options.input), MACHINES) as out:
        options.input.save(out)
        keep_origin(out, options.data)
        if not are_prepared(out / UTTERANCES_FILE, out / FEATURES_FILE):
            prepare_utterances(options.data, out, options.heldout, options.training.rbm.max_frames, options.input.cmvn)
        spec = PretrainSpec(options.data, out, options.input, options.training)
        train_on_ranks(options, "pyasr.train.dbn:pretrain_rank", spec, MACHINES, "pretrain.log")


if __name__ == "__main__":
    run_step(PretrainDbn, main, __doc__)
