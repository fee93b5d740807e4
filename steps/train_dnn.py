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

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import RankJobOptions
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import Recovery, run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.gmm_dir import check_phones
from pyasr.lang.lang_dir import LangDir
from pyasr.nn.dbn import DBN_FILE
from pyasr.parallel.strategies import check_strategy, usable_ranks
from pyasr.train.checkpoints import DIRECTORY, INDEX, last_place
from pyasr.train.combine import MODELS
from pyasr.train.dbn import check_dbn
from pyasr.train.dnn import DnnTraining, TrainSpec, check_training
from pyasr.train.prepare import TargetOptions, prepare_targets
from pyasr.train.progress_bar import progress_bar
from pyasr.train.targets import TARGETS_FILE, Targets


@dataclass(frozen=True)
class TrainDnn:
    data: Path = argument("data directory of the features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("directory of the model to be trained")
    num_ranks: int = option(2, "MPI ranks", minimum=1)
    dbn: Path | None = option(None, "directory of a DBN to start from (steps/pretrain_dbn.py)")
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    targets: TargetOptions = group(TargetOptions)
    training: DnnTraining = group(DnnTraining)
    jobs: RankJobOptions = group(RankJobOptions)


def main(options: TrainDnn) -> None:
    check_strategy(options.training.mixing)
    check_training(options.training, options.dbn)
    ali, lang = options.ali_dir, options.lang
    inputs = [options.data / "feats.scp", lang / "phones.txt", *(ali / name for name in ("num_jobs", "final.mdl", "tree"))]
    inputs += sorted(ali.glob("ali.*.gz")) + ([options.dbn / DBN_FILE] if options.dbn else [])
    with output_of(options, options.out, inputs, resume=True, precious=f"{DIRECTORY}/{INDEX}", may_change=("num_ranks",)) as out:
        check_phones(ali, LangDir(lang))
        if options.dbn:
            check_dbn(options.dbn, options.training.dnn, options.input, options.data)
        for source in (ali / "final.mdl", ali / "tree", lang / "phones.txt"):
            shutil.copy(source, out)
        options.input.save(out)
        prepare_targets(options.data, ali, out, options.targets, options.training.schedule.listens)
        spec = TrainSpec(options.data, out, options.input, options.training, options.dbn)
        recovery = Recovery(options.jobs, lambda most: usable_ranks(options.training.mixing, most), lambda: last_place(out))
        with progress_bar(out):
            run_ranks(options.jobs, out / "log" / "train.log", "pyasr.train.dnn:train_rank", spec, options.num_ranks, recovery)
        for directory in (DIRECTORY, MODELS):
            shutil.rmtree(out / directory, ignore_errors=True)
        Targets.remove(out / TARGETS_FILE)


if __name__ == "__main__":
    run_step(TrainDnn, main, __doc__)
