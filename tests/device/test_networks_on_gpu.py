"""Cross-entropy trainings of every kind of network, with all changes to networks, give the models of the CPU
on the mock GPU."""

import dataclasses

import pytest
from gpu_trainings import NATURAL, distance, make_corpus, on_both, spec_of, trained

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.train.data import minibatch_stream
from pyasr.train.data.data_shard import Shard

NETWORKS = {
    "dnn": "",
    "tdnn": "tdnn splice=-2..2 dim=16\ntdnn splice=-1,0,1 dim=16",
    "tdnnf": (
        "tdnn splice=-2..2 dim=16\ntdnnf dim=16 bottleneck-dim=6 repeat=2\nlinear dim=8 semi-orthogonal=true"
    ),
    "lstm": "lstm cells=12 recurrent=8 peepholes=true clip=3\ndelay frames=2",
    "lstmp": (
        "lstm cells=16 recurrent=4 nonrecurrent=4 peepholes=true natural-peepholes=true "
        "projection-bias=true clip-gradient=30"
    ),
    "blstm": "blstm cells=8\nlinear dim=8",
    "window": "affine dim=12\nwindow-blstm cells=6 left=2 right=2\naffine dim=12",
    "cnn": "conv channels=1 filters=8 time=3 bands=3 pool=2 step=2\naffine dim=12",
}
SAME_KERNELS = ("tdnn", "tdnnf", "cnn")  # distances from the models of the CPU, without natural gradient
# sources of differences: a loop instead of a fused LSTM; sums of squares and products in another order
RECURRENT, ONLINE = 1e-9, 1e-6
BOUNDS = {"dnn": ONLINE, **dict.fromkeys(SAME_KERNELS, 0)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def distance_of(corpus, out, name, **groups) -> float:
    """Distance between the models of the mock GPU and of the CPU."""
    host, there = on_both(
        lambda device: trained(spec_of(corpus, out / device, device, NETWORKS[name], **groups))
    )
    return distance(there, host)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_same_models_as_cpu(corpus, tmp_path, name):
    assert distance_of(corpus, tmp_path, name) <= BOUNDS.get(name, RECURRENT)


@pytest.mark.parametrize("name", ["dnn", "tdnn", "blstm", "cnn"])
def test_captured_natural_gradient(corpus, tmp_path, name):
    """Period 1 has no lag."""
    natural_gradient = dataclasses.replace(NATURAL, ng_update_period=1)
    assert (
        distance_of(corpus, tmp_path, name, learner=dict(natural_gradient=natural_gradient, momentum=0.5))
        < ONLINE
    )


@pytest.mark.parametrize("name", ["dnn", "tdnnf", "lstmp", "blstm", "cnn"])
def test_natural_gradient_and_limits(corpus, tmp_path, name):
    learner = dict(natural_gradient=NATURAL, max_change=0.5, max_change_per_layer=0.3, momentum=0.5, l2=1e-4)
    assert distance_of(corpus, tmp_path, name, learner=learner, schedule=dict(num_epochs=1)) < ONLINE


def test_natural_gradient_within_minibatches(corpus, tmp_path):
    learner = dict(natural_gradient=NaturalGradientOptions(natural_gradient="simple"))
    assert distance_of(corpus, tmp_path, "dnn", learner=learner) < ONLINE


@pytest.mark.parametrize("name", ["dnn", "tdnn", "lstm"])
def test_bfloat16_training_is_close_to_cpu(corpus, tmp_path, name):
    """CPU kernels for bfloat16 round at other places, which causes differences of a few thousandths."""
    assert distance_of(corpus, tmp_path, name, learner=dict(precision="bfloat16")) < 0.01


def test_carried_states_train_same_model_as_cpu(corpus, tmp_path):
    assert distance_of(corpus, tmp_path, "lstm", carry_state=True) < RECURRENT


def test_growing_network_trains_same_model_as_cpu(corpus, tmp_path):
    """First a layer is added, then outputs. The model is a combination of the last ones; its priors are mean
    posteriors."""
    growth = dict(layer_period_frames=250, mix_up=8, mix_up_min_count=1.0)
    combine = dict(combine="weights", combine_period_frames=100, combine_iterations=3)
    groups = dict(
        dnn=dict(hidden_layers=2),
        growth=growth,
        combine=combine,
        priors=dict(priors="posteriors"),
        sample=dict(sample_frames=200),
    )
    host, there = on_both(lambda device: trained(spec_of(corpus, tmp_path / device, device, **groups)))
    assert len(there) == 6 and len(there[-1]) == 8
    assert distance(there, host) < ONLINE


def test_saturated_units_and_shrinking_train_same_model_as_cpu(corpus, tmp_path):
    growth = dict(fix_period_frames=200, shrink_period_frames=300)
    groups = dict(dnn=dict(activation="tanh"), growth=growth, sample=dict(sample_frames=200))
    # factors of saturated units amplify rounding errors
    assert distance_of(corpus, tmp_path, "dnn", **groups) < 1e-4


def test_streamed_frames_train_same_model_as_cpu(corpus, tmp_path, monkeypatch):
    """Blocks are copied to the GPU from pinned memory during training on the previous block."""
    monkeypatch.setattr(Shard, "varies", True)
    monkeypatch.setattr(minibatch_stream, "_num_blocks", lambda num_bytes, room: 3)
    assert distance_of(corpus, tmp_path, "dnn") < ONLINE


def test_soft_targets_train_same_model_as_cpu(corpus, tmp_path):
    teacher = spec_of(corpus, tmp_path / "teacher", "cpu")
    trained(teacher, 1)
    teacher.input.save(teacher.out)
    assert distance_of(corpus, tmp_path, "dnn", teacher=dict(teacher=teacher.out)) < RECURRENT
