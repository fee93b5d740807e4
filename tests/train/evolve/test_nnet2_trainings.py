"""Whole trainings of nnet2-style networks on two ranks: grown, mixed up, combined, with priors from
posteriors; killed and resumed."""

import dataclasses
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from training_corpora import make_data

from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import mixing_options
from pyasr.train.data.input_transform import InputTransformOptions
from pyasr.train.evolve.combine import CombineOptions
from pyasr.train.evolve.growth import Growth, GrowthOptions
from pyasr.train.evolve.priors import PriorOptions
from pyasr.train.job.trainer import LoopOptions
from pyasr.train.objectives.dnn_training import DnnTraining, TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.steps.dnn_step import check_training
from pyasr.train.training_options import SampleOptions

ROOT = Path(__file__).resolve().parents[3]
NUM_PDFS, LENGTHS = 6, {f"{speaker}-{i}": 40 + 10 * i for speaker in "abcdef" for i in range(6)}
INPUT = InputOptions(cmvn="none", splice_left=1, splice_right=1)
PNORM = DnnTraining(
    dnn=DnnOptions(hidden_layers=3, hidden_dim=10, activation="pnorm", pnorm_group=3),
    schedule=ScheduleOptions(learning_rate=0.15, num_epochs=3),
    learner=LearnerOptions(
        minibatch=32,
        precision="float32",
        device="cpu",
        momentum=0.5,
        max_change=2.0,
        natural_gradient=NaturalGradientOptions(natural_gradient="online"),
    ),
    transform=InputTransformOptions(input_transform="lda"),
    growth=GrowthOptions(layer_period_frames=1000, mix_up=12),
    priors=PriorOptions(presoftmax_power=-0.25, priors="posteriors"),
    combine=CombineOptions(
        combine="weights", combine_models=4, combine_period_frames=500, combine_iterations=5
    ),
    sample=SampleOptions(sample_frames=600),
    mixing=mixing_options(period_frames=100),
    loop=LoopOptions(checkpoint_frames=700, log_frames=2000),
)
TANH = dataclasses.replace(
    PNORM,
    dnn=DnnOptions(hidden_layers=2, hidden_dim=12, activation="tanh"),
    growth=GrowthOptions(layer_period_frames=1500, fix_period_frames=1000, shrink_period_frames=900),
    priors=PriorOptions(),
    combine=CombineOptions(combine="average", combine_models=3, combine_period_frames=700),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    data = tmp_path_factory.mktemp("corpus") / "data"
    targets = make_data(data, LENGTHS, NUM_PDFS)
    targets.heldout[:] = [key.startswith("f") for key in targets.keys]
    return data, targets


def train(corpus, out, options):
    data, targets = corpus
    out.mkdir(exist_ok=True)
    targets.save(out / "targets.npz")
    run_threads(2, lambda comm: train_rank(TrainSpec(data, out, INPUT, options), comm))
    return load_scorer(out)


def accuracy(corpus, scorer):
    data, targets = corpus
    reader = FeatureReader(data, INPUT)
    keys = [key for key in targets.keys if key.startswith("f")]
    return np.concatenate(
        [scorer.log_likelihoods(reader[key]).argmax(1) == targets.pdfs_of(key) for key in keys]
    ).mean()


class Crash(Exception):
    """Ends a rank."""


@pytest.mark.parametrize("options, num_outputs", [(PNORM, 12), (TANH, 6)], ids=["pnorm", "tanh"])
def test_growing_training_killed_and_resumed(corpus, tmp_path, monkeypatch, options, num_outputs):
    whole = train(corpus, tmp_path / "whole", options)
    assert (
        whole.network.options.hidden_layers == options.dnn.hidden_layers
        and whole.network.layers[-1].out_features == num_outputs
    )
    assert accuracy(corpus, whole) > 0.7  # a sixth by chance
    step, steps_left = Learner.step, []

    def dying(self, *arguments):
        steps_left[0] -= 1
        if steps_left[0] < 0:
            raise Crash
        return step(self, *arguments)

    monkeypatch.setattr(Learner, "step", dying)
    for num_steps in np.random.default_rng(0).integers(40, 80, 2):  # of 190 on both ranks
        steps_left[:] = [int(num_steps)]
        with pytest.raises(Crash):
            train(corpus, tmp_path / "cut", options)
    monkeypatch.undo()
    again = train(corpus, tmp_path / "cut", options)
    assert all(torch.equal(a, b) for a, b in zip(again.network.parameters(), whole.network.parameters()))
    assert torch.equal(again.log_priors, whole.log_priors) and torch.equal(
        again.network.transform, whole.network.transform
    )


def test_incompatible_options_are_refused():
    newbob = dataclasses.replace(PNORM, schedule=ScheduleOptions(schedule="newbob"))
    with pytest.raises(
        UserError, match="--layer-period-frames and --mix-up: this --schedule may return to an earlier model"
    ):
        check_training(newbob)
    unsmoothed = LearnerOptions(natural_gradient=NaturalGradientOptions("simple", ng_alpha=0.0))
    with pytest.raises(
        UserError,
        match="--ng-alpha 0: .*needs at least 0.01; give a larger value, or --natural-gradient online",
    ):
        check_training(DnnTraining(learner=unsmoothed))
    check_training(PNORM)


@pytest.mark.parametrize(
    "conf",
    sorted((ROOT / "egs" / "amazon_queen" / "s5" / "conf").glob("dnn*.conf")),
    ids=lambda path: path.name,
)
def test_egs_configurations_are_accepted(conf):
    step = runpy.run_path(str(ROOT / "steps" / "train_dnn.py"))
    options, _ = parse(step["TrainDnn"], ["--config", str(conf), "data", "lang", "ali", "out"])
    check_training(options.training)
    frames = 1_200_000 * options.training.schedule.num_epochs
    Growth(options.training.growth, options.training.dnn, np.ones(1743), frames, 0, SoloComm())
