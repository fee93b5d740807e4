#!/usr/bin/env python3
"""Pretrain a deep belief net, a stack of restricted Boltzmann machines, on features alone, on several MPI ranks.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames}
Writes DBN_DIR/final.dbn (machines, normalisation), input.json, rbm1/metrics.jsonl, rbm2/metrics.jsonl, ..., log/pretrain.log

`steps/train_dnn.py --dbn DBN_DIR` starts a network of sigmoid units from it. A job that was interrupted goes on from its last checkpoint
when the same command is given again, also with another --num-ranks; one that has lost a rank does so by itself, with the ranks left.

Example:
    steps/pretrain_dbn.py --num-ranks 2 --hidden-layers 6 --hidden-dim 2048 data/train exp/dbn
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import RankJobOptions
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import Recovery, run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.parallel.strategies import check_strategy, usable_ranks
from pyasr.train.checkpoints import DIRECTORY, INDEX, last_place
from pyasr.train.dbn import UTTERANCES_FILE, DbnTraining, PretrainSpec, prepare_utterances
from pyasr.train.progress_bar import progress_bar
from pyasr.train.targets import HeldoutOptions, Targets


@dataclass(frozen=True)
class PretrainDbn:
    data: Path = argument("data directory of the features")
    out: Path = argument("directory of the DBN to be trained")
    num_ranks: int = option(2, "MPI ranks", minimum=1)
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    heldout: HeldoutOptions = group(HeldoutOptions)
    training: DbnTraining = group(DbnTraining)
    jobs: RankJobOptions = group(RankJobOptions)


def main(options: PretrainDbn) -> None:
    check_strategy(options.training.mixing)
    checkpoints = f"rbm*/{DIRECTORY}"
    kept = dict(resume=True, precious=f"{checkpoints}/{INDEX}", may_change=("num_ranks",))
    with output_of(options, options.out, [options.data / "feats.scp"], **kept) as out:
        options.input.save(out)
        prepare_utterances(options.data, out, options.heldout, options.training.rbm.max_frames)
        spec = PretrainSpec(options.data, out, options.input, options.training)
        recovery = Recovery(options.jobs, lambda most: usable_ranks(options.training.mixing, most), lambda: last_place(out, checkpoints))
        with progress_bar(out, "rbm*/metrics.jsonl"):
            run_ranks(options.jobs, out / "log" / "pretrain.log", "pyasr.train.dbn:pretrain_rank", spec, options.num_ranks, recovery)
        for checkpoint in out.glob(checkpoints):
            shutil.rmtree(checkpoint)
        Targets.remove(out / UTTERANCES_FILE)


if __name__ == "__main__":
    run_step(PretrainDbn, main, __doc__)
