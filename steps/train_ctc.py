#!/usr/bin/env python3
"""Train a network over time by connectionist temporal classification on transcripts alone, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames,text}, UNITS_DIR/{units.model,units.txt,words.txt}, NETWORK
Writes CTC_DIR/final.nnet (network, normalisation), input.json, units/ (a copy of UNITS_DIR), metrics.jsonl, tensorboard/, log/train.log

Neither alignments nor a lexicon are needed (docs/ctc.md). An interrupted job goes on from its last checkpoint, as one of
steps/train_dnn.py.

Example:
    steps/train_ctc.py --num-ranks 2 data/train_fbank data/units conf/network/ctc.net exp/ctc
"""

from dataclasses import dataclass

from pyasr.base.job_options import RankJobOptions
from pyasr.base.options import group, option
from pyasr.base.step import run_step
from pyasr.cluster.jobs import Recovery, run_ranks
from pyasr.parallel.strategies import usable_ranks
from pyasr.train.checkpoints import DIRECTORY, INDEX, last_place
from pyasr.train.ctc import CtcStep, staged_ctc
from pyasr.train.progress_bar import progress_bar


@dataclass(frozen=True)
class TrainCtc(CtcStep):
    num_ranks: int = option(2, "MPI ranks", minimum=1)
    jobs: RankJobOptions = group(RankJobOptions)


def main(options: TrainCtc) -> None:
    kept = dict(resume=True, precious=f"{DIRECTORY}/{INDEX}", may_change=("num_ranks",))
    with staged_ctc(options, **kept) as spec, progress_bar(spec.out):
        recovery = Recovery(options.jobs, lambda most: usable_ranks(options.training.mixing, most), lambda: last_place(spec.out))
        run_ranks(options.jobs, spec.out / "log" / "train.log", "pyasr.train.ctc:train_rank", spec, options.num_ranks, recovery)


if __name__ == "__main__":
    run_step(TrainCtc, main, __doc__)
