#!/usr/bin/env python3
"""Train a feed-forward acoustic model as steps/train_dnn.py does, on learners and a network that are simulated, in virtual time.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk,utt2num_frames}, LANG/phones.txt, ALI_DIR/{ali.*.gz,num_jobs,final.mdl,tree,phones.txt}
Writes DNN_DIR/simulation.json (options; held-out objective and accuracy against virtual seconds; seconds by activity; whether it diverged),
       and, unless it diverged, what steps/train_dnn.py does: final.nnet, final.mdl, tree, input.json, phones.txt, metrics.jsonl,
       tensorboard/, log/train.1.log, times in virtual seconds

Compares schemes at any number of learners on one core. An interrupted simulation begins anew.

Example:
    steps/simulate_parallel.py --num-learners 16 --parallel butterfly --straggler 10 data/train_fmllr data/lang exp/tri3_ali exp/virtual/b16
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.gmm_dir import check_phones
from pyasr.lang.lang_dir import LangDir
from pyasr.parallel.strategies import check_strategy
from pyasr.train.combine import MODELS
from pyasr.train.dnn import DnnTraining, TrainSpec, check_training
from pyasr.train.prepare import TargetOptions, prepare_targets
from pyasr.train.targets import TARGETS_FILE, Targets
from pyasr.train.virtual import SimulationSpec, VirtualOptions


@dataclass(frozen=True)
class SimulateParallel:
    data: Path = argument("data directory of the features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("directory of the model to be trained")
    virtual: VirtualOptions = group(VirtualOptions)
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    targets: TargetOptions = group(TargetOptions)
    training: DnnTraining = group(DnnTraining)
    jobs: JobOptions = group(JobOptions)


def main(options: SimulateParallel) -> None:
    check_strategy(options.training.mixing)
    check_training(options.training, None)
    ali, lang = options.ali_dir, options.lang
    inputs = [options.data / "feats.scp", lang / "phones.txt", *(ali / name for name in ("num_jobs", "final.mdl", "tree"))]
    with output_of(options, options.out, inputs + sorted(ali.glob("ali.*.gz"))) as out:
        check_phones(ali, LangDir(lang))
        for source in (ali / "final.mdl", ali / "tree", lang / "phones.txt"):
            shutil.copy(source, out)
        options.input.save(out)
        prepare_targets(options.data, ali, out, options.targets, options.training.schedule.listens)
        spec = SimulationSpec(TrainSpec(options.data, out, options.input, options.training), options.virtual)
        run_jobs(options.jobs, out / "log" / "train.JOB.log", "pyasr.train.virtual:simulate_job", spec, num_jobs=1)
        shutil.rmtree(out / MODELS, ignore_errors=True)
        Targets.remove(out / TARGETS_FILE)


if __name__ == "__main__":
    run_step(SimulateParallel, main, __doc__)
