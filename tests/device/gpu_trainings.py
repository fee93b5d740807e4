"""Small trainings on the CPU and on the mock GPU."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from budgets import check, counted_steps
from mock_gpu import mock_gpu
from toy_jobs import NUM_PDFS, with_options
from training_corpora import make_data

from pyasr.feats.inputs import InputOptions
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.acoustic import MODEL_FILE, load_model
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets

Result = TypeVar("Result")
NATURAL = NaturalGradientOptions(natural_gradient="online", ng_rank_in=4, ng_rank_out=4)


def on_both(train: Callable[[str], Result], budget: str = "") -> tuple[Result, Result]:
    """(result of `train("cpu")`, result of `train("cuda")` on the mock GPU). The GPU's steps are checked
    against a budget, if one is named."""
    host = train("cpu")
    with mock_gpu() as gpu, counted_steps(gpu) if budget else contextlib.nullcontext() as steps:
        there = train("cuda")
    assert gpu.num_launches > 100, "nothing was computed on the GPU"
    if budget:
        check(budget, steps)
    return host, there


def distance(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """Norm of the difference of two sets of parameters, relative to the norm of the second."""
    one, other = (
        torch.cat([value.detach().double().flatten() for value in parameters]) for parameters in (one, other)
    )
    return float((one - other).norm() / other.norm())


def make_corpus(path: Path, num_utterances: int = 8) -> Path:
    """PATH/data and targets: utterances of 31 or more frames, a quarter of which are held out."""
    targets = make_data(path / "data", {f"a-{i:02d}": 31 + i for i in range(num_utterances)}, NUM_PDFS)
    dataclasses.replace(targets, heldout=np.arange(num_utterances) % 4 == 0).save(path / TARGETS_FILE)
    return path


def spec_of(
    corpus: Path,
    out: Path,
    device: str,
    lines: str = "",
    chunk: int = 10,
    carry_state: bool = False,
    **groups,
) -> TrainSpec:
    """Specification for `train_rank` with two epochs: a network with such lines over chunks, or a DNN on
    spliced frames."""
    out.mkdir(parents=True)
    Targets.load(corpus / TARGETS_FILE).save(out / TARGETS_FILE)
    if lines:
        (out / "layers.net").write_text(lines)
        groups["over_time"] = dict(network=out / "layers.net", chunk=chunk, carry_state=carry_state)
    learner = {**dict(minibatch=100 if lines else 40, device=device), **groups.pop("learner", {})}
    schedule = {**dict(num_epochs=2, learning_rate=0.2), **groups.pop("schedule", {})}
    loop = {**dict(log_frames=200, checkpoint_frames=100), **groups.pop("loop", {})}
    context = 0 if lines else 2
    options = with_options(learner=learner, schedule=schedule, loop=loop, **groups)
    return TrainSpec(
        corpus / "data", out, InputOptions(cmvn="none", splice_left=context, splice_right=context), options
    )


def trained(spec: TrainSpec, num_ranks: int = 2, kind: type = Trainer) -> list[torch.Tensor]:
    """Parameters of the final model file."""
    run_threads(num_ranks, lambda comm: train_rank(spec, comm, kind))
    return list(load_model(spec.out / MODEL_FILE).network.state_dict().values())
