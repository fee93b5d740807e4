#!/usr/bin/env python3
"""Train an acoustic model as steps/train_dnn.py does, on learners and a network that are simulated, in
virtual time.

Reads  DATA, LANG/phones.txt and ALI_DIR as steps/train_dnn.py does, and what it reads with --network, --dbn,
       --vtlp and --teacher
Writes OUT/simulation.json (options; held-out objective and accuracy against virtual seconds; seconds by
       activity; the verdict on the network), and, unless its numbers were not finite, what steps/train_dnn.py
       does: final.nnet, final.mdl, tree, input.json, feature_origin.json, phones.txt, metrics.jsonl,
       tensorboard/, log/train.1.log, times in virtual seconds; with --save-learner also OUT/learner

Compares schemes at any number of learners on one core. An interrupted simulation starts from scratch.

Example:
    steps/simulate_parallel.py --num-learners 16 --parallel butterfly --straggler 10 data/train_fmllr \\
        data/lang exp/tri3_ali exp/virtual/b16
"""

from dataclasses import dataclass

from pyasr.base.cli.job_options import RunnerOptions
from pyasr.base.cli.option_uses import never
from pyasr.base.cli.options import group
from pyasr.base.cli.step import run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.train.steps.dnn_step import DnnStep, DnnTraining
from pyasr.train.steps.training_step import staged
from pyasr.train.steps.virtual_step import SimulationSpec, VirtualOptions

_UNUSED = {
    "checkpoint_minutes": never("a simulation saves no checkpoints"),
    "stop_at_divergence": never("a simulation continues while its objective is a number"),
}


@dataclass(frozen=True)
class SimulateParallel(DnnStep):
    training: DnnTraining = group(DnnTraining, only={"loop": _UNUSED})
    virtual: VirtualOptions = group(VirtualOptions)
    jobs: RunnerOptions = group(RunnerOptions)

    @property
    def num_ranks(self) -> int:  # type: ignore[override]  # an option of other steps
        return self.virtual.num_learners


def main(options: SimulateParallel) -> None:
    with staged(options) as spec:
        work = SimulationSpec(spec, options.virtual)
        run_jobs(
            options.jobs,
            spec.out / "log" / "train.JOB.log",
            "pyasr.train.simulate.virtual_learners:simulate_job",
            work,
            num_jobs=1,
        )


if __name__ == "__main__":
    run_step(SimulateParallel, main, __doc__)
