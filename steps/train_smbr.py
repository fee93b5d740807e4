#!/usr/bin/env python3
"""Train a network further with a sequence criterion on lattices (sMBR, MPFE, MMI or boosted MMI), on several
MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,utt2uniq}, LANG/{phones.txt,phones/silence.int},
       ALI_DIR/{ali.*.gz,num_jobs,final.mdl}, DECODE_DIR/{lat.*.gz,num_jobs},
       DNN_DIR/{final.nnet,final.mdl,tree,input.json,feature_origin.json}
Writes OUT/final.nnet (the trained network, with the normalisation and priors of DNN_DIR), final.mdl, tree,
       input.json, feature_origin.json, phones.txt, metrics.jsonl, tensorboard/, log/train.log

ALI_DIR has the reference alignments and DECODE_DIR the lattices of the training data
(docs/networks/sequence_training.md). A minibatch is one utterance, or with --minibatch N several utterances
with up to N frames in total. Dropout of the network stays active, also for posteriors and derivatives;
--dropout-schedule 0,0 turns it off. To resume an interrupted job from its last checkpoint, run the same
command again; --num-ranks may differ. A job that loses a rank continues automatically with the remaining
ranks.

Example:
    steps/train_smbr.py --num-ranks 2 data/train_hires data/lang exp/dnn_ali exp/dnn/denlats exp/dnn \\
        exp/dnn_smbr
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.step import run_step
from pyasr.decode.lattice_jobs.lattice_dir import archives
from pyasr.train.steps.on_ranks import OnRanks
from pyasr.train.steps.smbr_step import SmbrStep
from pyasr.train.steps.training_step import train


@dataclass(frozen=True)
class TrainSmbr(OnRanks, SmbrStep):
    def lattices(self) -> list[Path]:
        """Lattice archives in `decode_dir`."""
        return archives(self.decode_dir)


def main(options: TrainSmbr) -> None:
    train(options)


if __name__ == "__main__":
    run_step(TrainSmbr, main, __doc__)
