#!/usr/bin/env python3
"""Train a network over time with connectionist temporal classification (CTC) on transcripts without
alignments, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq,text},
       UNITS_DIR/{units.model,units.txt,words.txt}, NETWORK
Writes OUT/final.nnet (network, normalisation), input.json, feature_origin.json, units/ (a copy of
       UNITS_DIR), metrics.jsonl, tensorboard/, log/train.log

Neither alignments nor a lexicon are needed (docs/networks/ctc.md). To resume an interrupted job from its last
checkpoint, run the same command again; --num-ranks may differ. A job that loses a rank continues
automatically with the remaining ranks.

Example:
    steps/train_ctc.py --num-ranks 2 data/train_fbank data/units conf/network/ctc.net exp/ctc
"""

from dataclasses import dataclass

from pyasr.base.cli.step import run_step
from pyasr.train.steps.ctc_step import CtcStep
from pyasr.train.steps.on_ranks import OnRanks
from pyasr.train.steps.training_step import train


@dataclass(frozen=True)
class TrainCtc(OnRanks, CtcStep):
    pass


def main(options: TrainCtc) -> None:
    train(options)


if __name__ == "__main__":
    run_step(TrainCtc, main, __doc__)
