#!/usr/bin/env python3
"""Percentage of the LF-MMI objective in the time of a training step, and time of its denominator compared
with plain torch.

Uses speech, alignments and tree of a recipe (run.sh, steps/build_chain_tree.py). Times are CPU seconds on one
core, or with a GPU (--device) wall seconds, including the synchronisation after each part. A step is the
whole processing of a minibatch: forward and backward pass, natural gradient, objective, update. The objective
consists of numerator and denominator, with posteriors. Numerators are computed when a chunk is used for the
first time, and kept; the first pass is therefore printed separately. The peer computes the denominator's sums
as products of torch's sparse matrices, for all sequences at once; on a GPU, pyasr does the same. The training
options are those of steps/train_lfmmi.py; one rank is measured.

Example, in egs/amazon_queen/s5 once run_models.sh has made the tree:
    OMP_NUM_THREADS=1 ../../../benchmarks/train_lfmmi.py --config conf/chain.conf \\
        data/train_sp_fmllr exp/tri3_ali_sp exp/models/chain_tree
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from train_dnn import seconds

from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import run_step
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.model_file import read_subsampling
from pyasr.parallel.communication.comm import SoloComm
from pyasr.sequence.lfmmi import leaky_hmm
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.train.data.rank_data import FrameSource, open_corpus
from pyasr.train.objectives import lfmmi_training
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import seed_dropout
from pyasr.train.steps import lfmmi_step as steps
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets


@dataclass(frozen=True)
class Benchmark:
    data: Path = argument("data directory of the features")
    ali_dir: Path = argument("alignments")
    tree_dir: Path = argument("directory of steps/build_chain_tree.py")
    input: InputOptions = group(InputOptions)
    training: steps.LfMmiTraining = group(steps.LfMmiTraining)
    num_minibatches: int = option(
        20, "number of timed minibatches per pass, after three that are not timed", minimum=1
    )


class Clock:
    """Seconds in functions, by name: CPU seconds, or on a GPU wall seconds including synchronisation."""

    def __init__(self, device: str):
        self.device = device
        self.spent: dict[str, float] = {}

    def timed(self, name: str, function: Callable) -> Callable:
        def call(*args, **kwargs):
            begin = seconds(self.device)
            result = function(*args, **kwargs)
            self.spent[name] = self.spent.get(name, 0.0) + seconds(self.device) - begin
            return result

        return call


def staged(options: Benchmark, out: Path) -> steps.LfMmiSpec:
    """The spec of a rank, with all its inputs in `out`."""
    steps.check_training(options.training)
    step = steps.LfMmiStep(
        options.data, options.ali_dir, options.tree_dir, out, options.input, training=options.training
    )
    steps.check_factor(step, options.input)
    steps.prepare(step, out)
    return steps.LfMmiSpec(options.data, out, options.input, options.training)


def device_of(spec: steps.LfMmiSpec) -> str:
    return spec.training.learner.torch_device().type


def timed_passes(spec: steps.LfMmiSpec, options: Benchmark) -> list[dict[str, float]]:
    """Seconds per minibatch by part, of a first and a second pass over the same minibatches."""
    training, targets, comm = spec.training, Targets.load(spec.out / TARGETS_FILE), SoloComm()
    minibatch, num_batches = training.learner.minibatch, options.num_minibatches + 3
    rate = training.schedule.learning_rate / minibatch
    source = FrameSource(
        spec.data,
        spec.input,
        targets,
        training.store,
        training.learner,
        1,
        training.perturb,
        over_time=training.over_time,
    )
    corpus = open_corpus(source, comm, (0, 10))
    criterion = lfmmi_training.make_criterion(spec, corpus.packing.subsampling)
    seed_dropout(training.loop.train_seed, comm.rank)
    learner = Learner(
        lfmmi_training.make_network(training, corpus.input_dim, targets.num_pdfs),
        training.learner,
        comm.size,
        None,
        criterion,
    )
    batches = [batch for batch, _ in zip(corpus.training.minibatches(minibatch, 1), range(num_batches))]
    for x, t in batches[:3]:
        learner.step(x, t, rate)
    passes = []
    for _ in range(2):
        clock = Clock(device_of(spec))
        step = clock.timed("step", learner.step)
        with (
            patch.object(
                lfmmi_training,
                "lf_mmi_with_posteriors",
                clock.timed("objective", lfmmi_training.lf_mmi_with_posteriors),
            ),
            patch.object(
                criterion.numerators, "of", clock.timed("making numerators", criterion.numerators.of)
            ),
            patch.object(
                leaky_hmm, "forward_backward", clock.timed("denominator", leaky_hmm.forward_backward)
            ),
        ):
            for x, t in batches[3:]:
                step(x, t, rate)
        passes.append({name: spent / len(batches[3:]) for name, spent in clock.spent.items()})
    return passes


def denominator_times(spec: steps.LfMmiSpec) -> dict[str, float]:
    """Seconds of the denominator of a minibatch of random outputs: by pyasr and, on a CPU, by plain torch."""
    graph = DenominatorGraph.load(spec.out / lfmmi_training.DENOMINATOR_FILE)
    training, leak = spec.training, spec.training.objective.leaky_hmm_coefficient
    frames = training.over_time.chunk // read_subsampling(spec.out)
    logits = torch.randn(
        training.learner.minibatch // frames,
        frames,
        graph.num_pdfs,
        generator=torch.Generator().manual_seed(0),
    )
    logits, clock = logits.to(device_of(spec)), Clock(device_of(spec))
    inputs = (logits, graph, leak, np.full(len(logits), frames))
    systems = {"ours": leaky_hmm.forward_backward}
    if clock.device == "cpu":
        systems["plain torch"] = leaky_hmm._by_sparse_matrices
    for name, function in systems.items():
        first = function(*inputs)  # compiles
        clock.timed(name, function)(*inputs)
        torch.testing.assert_close(first[0], leaky_hmm.forward_backward(*inputs)[0], rtol=1e-4, atol=1e-2)
    return clock.spent


def main(options: Benchmark) -> None:
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; "
        f"{options.training.over_time.network}, minibatches of {options.training.learner.minibatch} outputs"
    )
    with tempfile.TemporaryDirectory() as folder:
        spec = staged(options, Path(folder))
        unit = "CPU s" if device_of(spec) == "cpu" else "s"
        for name, spent in zip(("first pass", "later passes"), timed_passes(spec, options)):
            whole = spent["step"]
            parts = ", ".join(
                f"{part} {1000 * spent[part]:.0f} ms ({spent[part] / whole:.0%})"
                for part in spent
                if part != "step"
            )
            print(
                f"{name}: {options.training.learner.minibatch / whole:.0f} outputs/{unit}, a step "
                f"{1000 * whole:.0f} ms; of it {parts}"
            )
        times = denominator_times(spec)
    for name, spent in times.items():
        print(
            f"denominator of a minibatch, {name}: {1000 * spent:.0f} ms, {spent / times['ours']:.1f} times "
            "as long as ours"
        )


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
