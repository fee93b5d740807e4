"""A training does not resume from the checkpoint of a different network."""

import dataclasses

import pytest
from training_corpora import make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.evolve.growth import GrowthOptions
from pyasr.train.job.trainer import LoopOptions
from pyasr.train.objectives.dnn_training import DnnTraining, TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.targets.pdf_targets import TARGETS_FILE

SMALL = DnnOptions(hidden_layers=2, hidden_dim=16)


class Crash(Exception):
    pass


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", {f"{speaker}-{i}": 60 for speaker in "abcd" for i in range(4)}, 6)
    make_alignments(path / "ali", targets)
    return path / "data", dataclasses.replace(targets, heldout=targets.offsets[1:] > 720)


def spec_of(corpus, out, dnn, splice=1, num_pdfs=6, **groups):
    data, targets = corpus
    out.mkdir(exist_ok=True)
    dataclasses.replace(targets, num_pdfs=num_pdfs).save(out / TARGETS_FILE)
    groups = (
        dict(
            schedule=ScheduleOptions(learning_rate=0.05, num_epochs=3),
            loop=LoopOptions(checkpoint_frames=200),
        )
        | groups
    )
    training = DnnTraining(
        dnn=dnn, learner=LearnerOptions(minibatch=48, precision="float32", device="cpu"), **groups
    )
    return TrainSpec(data, out, InputOptions(cmvn="none", splice_left=splice, splice_right=splice), training)


def interrupted(spec, monkeypatch, num_steps=25):
    step, count = Learner.step, [0]

    def dying(self, *arguments):
        count[0] += 1
        if count[0] > num_steps:
            raise Crash
        return step(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Learner, "step", dying)
        train_rank(spec, SoloComm())


@pytest.mark.parametrize(
    "dnn, groups, expected_text",
    [
        (DnnOptions(hidden_layers=3, hidden_dim=16), {}, r"options.hidden_layers: 2 -> 3"),
        (DnnOptions(hidden_layers=2, hidden_dim=20), {}, r"options.hidden_dim: 16 -> 20"),
        (
            DnnOptions(hidden_layers=2, hidden_dim=16, activation="tanh"),
            {},
            r"options.activation: relu -> tanh",
        ),
        (SMALL, dict(splice=2), r"input_dim: 18 -> 30"),
        (SMALL, dict(num_pdfs=9), r"num_pdfs: 6 -> 9"),
        (
            SMALL,
            dict(growth=GrowthOptions(mix_up=8)),
            r"layers 16x18, 16x16, 6x16; this one has 16x18, 16x16, 8x16",
        ),
    ],
)
def test_checkpoint_of_other_shape_is_refused(corpus, tmp_path, monkeypatch, dnn, groups, expected_text):
    interrupted(spec_of(corpus, tmp_path / "out", SMALL), monkeypatch, 40 if "growth" in groups else 25)
    with pytest.raises(
        UserError,
        match=(
            rf"checkpoint: a checkpoint of another network \(.*{expected_text}.*\); give the options of that "
            r"network"
        ),
    ):
        train_rank(spec_of(corpus, tmp_path / "out", dnn, **groups), SoloComm())


def test_grown_network_resumes(corpus, tmp_path, monkeypatch):
    """After a new layer, and after new outputs."""
    growth = GrowthOptions(layer_period_frames=600, mix_up=8)
    for num_steps in (20, 36):
        spec = spec_of(corpus, tmp_path / str(num_steps), SMALL, growth=growth)
        interrupted(spec, monkeypatch, num_steps)
        train_rank(spec, SoloComm())
        assert (spec.out / "final.nnet").exists()
