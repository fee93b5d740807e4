"""Captured steps against the learner's steps without capture. On a CPU the captured steps run without a
graph."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch
from torch import Tensor
from toy_jobs import SEED, Crash, crash_after, store, training, with_options

from pyasr.nn.layers.natural_gradient import NUM_FIRST_UPDATES
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.mixing import flat
from pyasr.train.sgd.captured_step import CapturedStep, reasons_not_captured
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.sgd.step_passes import LayersPasses, PlainPasses
from pyasr.train.targets.soft_targets import SoftTargets

DIM, NUM_PDFS, RATE = 10, 13, 1e-3
FIRST = NUM_FIRST_UPDATES + 1
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
    ),
]
SIZES = [64, 64, 64, 20, 64, 64, 24, 24]
CHUNKS, FRAMES = 6, 8
# the first layer has more rows than there are targets
TDNN = ["tdnn dim=20 splice=-1..1", "tdnn dim=16 splice=-2,2", "linear dim=7"]
BLSTM = ["blstm cells=6", "affine dim=9"]


def make_learner(
    device: str,
    is_captured: bool,
    kind: str = "online",
    period: int = 1,
    layers: list[str] | None = None,
    dnn: Mapping = MappingProxyType({}),
    natural: Mapping = MappingProxyType({}),
    **options,
) -> Learner:
    dnn_options = DnnOptions(**{"hidden_layers": 3, "hidden_dim": 40, "activation": "sigmoid", **dnn})
    generator = torch.Generator().manual_seed(3)
    network = LayeredNetwork(layers, DIM, NUM_PDFS) if layers else FeedForward(dnn_options, DIM, NUM_PDFS)
    if layers:
        network.initialise(generator)
    else:
        initialise(network, dnn_options, generator)
    natural = NaturalGradientOptions(natural_gradient=kind, ng_update_period=period, **natural)
    options = {"precision": "float32", "device": device, "natural_gradient": natural, **options}
    learner = Learner(network, LearnerOptions(**options))
    learner.is_captured = is_captured
    return learner


def minibatches(learner: Learner, num: int, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Minibatches of several sizes, one size several times in a row; of chunks for a network over time."""
    generator, found = torch.Generator().manual_seed(seed), []
    for number in range(num):
        size = SIZES[number % len(SIZES)]
        shape = (size,)
        if isinstance(learner.network, LayeredNetwork):
            shape = (CHUNKS if size == SIZES[0] else CHUNKS // 2, FRAMES)
        x = torch.randn(*shape, DIM, generator=generator)
        pdfs = ((x[..., 0] + x[..., 1]).abs() * 4).long().clamp(max=NUM_PDFS - 1)
        if len(shape) > 1:
            left, right = learner.network.left, learner.network.right
            x = torch.randn(shape[0], left + FRAMES + right, DIM, generator=generator)
        found.append(
            (x.to(learner.flat.work.device, learner.flat.work.dtype), pdfs.to(learner.flat.work.device))
        )
    return found


def learn(learner: Learner, some: list[tuple[Tensor, Tensor]], rate: float = RATE) -> Tensor:
    """The results of the steps, (steps, 3); every step has a different rate."""
    return torch.stack(
        [learner.step(x, pdfs, rate * (1 + number % 3)) for number, (x, pdfs) in enumerate(some)]
    )


CASES = {
    "plain": dict(kind="none"),
    "natural gradient": dict(),
    "one hidden layer": dict(dnn=dict(hidden_layers=1, activation="relu")),
    "rates of parts": dict(output_bias_rate=0.1, last_layers_rate=0.5, dnn=dict(activation="tanh")),
    "momentum": dict(momentum=0.9, rate=1e-4),
    "limits": dict(max_change=0.02, max_change_per_layer=0.01),
    "limit per sample": dict(kind="none", natural=dict(max_change_per_sample=1e-3)),
    "limit per sample and natural gradient": dict(natural=dict(max_gradient_per_sample=1e-2)),
    "normalised": dict(dnn=dict(normalize=True)),
    "history of minibatches": dict(natural=dict(ng_num_minibatches_history=4.0)),
    "over time": dict(layers=TDNN, natural=dict(ng_num_samples_history=100.0)),
    "recurrent": dict(layers=BLSTM),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_captured_step_equals_plain_step(device, name):
    """With update period 1, for which F is the same, the returned sums and the parameters are equal to
    rounding."""
    case = dict(CASES[name])
    rate = case.pop("rate", RATE)
    own, captured = (make_learner(device, is_captured, **case) for is_captured in (False, True))
    some, begin = minibatches(own, FIRST + 2 * len(SIZES)), own.flat.master.clone()
    found, expected = learn(captured, some, rate), learn(own, some, rate)
    torch.testing.assert_close(found[:, [0, 2]], expected[:, [0, 2]], rtol=1e-4, atol=0)
    # two outputs may be equal up to rounding
    torch.testing.assert_close(found[:, 1], expected[:, 1], rtol=0, atol=1)
    assert captured._captured and not own._captured and captured.num_steps == own.num_steps == len(some)
    assert (captured.flat.master - own.flat.master).norm() < 2e-5 * (own.flat.master - begin).norm()
    assert device == "cpu" or len(captured._captured._graphs) == 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["natural gradient", "over time"])
def test_lag_changes_little(device, case):
    """With a longer period, parameters differ from those without a lag, but the objective is the same."""
    own, captured = (
        make_learner(device, is_captured, period=4, **CASES[case]) for is_captured in (False, True)
    )
    some, begin = minibatches(own, FIRST + 40), own.flat.master.clone()
    theirs, ours = learn(own, some), learn(captured, some)
    assert 1e-4 < (captured.flat.master - own.flat.master).norm() / (own.flat.master - begin).norm() < 0.2
    torch.testing.assert_close(ours[:, 0].sum(), theirs[:, 0].sum(), rtol=0.01, atol=0)


def reloaded(state: dict) -> dict:
    """The state as it is read from a checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["plain", "natural gradient", "momentum", "over time"])
@pytest.mark.parametrize("num_steps", [5, FIRST, FIRST + 3, FIRST + 4, FIRST + 10])
def test_resume_gives_same_bits(device, case, num_steps):
    """From before the first captured step, before the first and between later updates of F."""
    options = {name: value for name, value in CASES[case].items() if name != "rate"}
    learner, other = (make_learner(device, True, period=4, **options) for _ in range(2))
    some = minibatches(learner, num_steps + 14)
    learn(learner, some[:num_steps])
    other.flat.master.copy_(learner.flat.master)
    other.flat.refresh()
    other.load_state_dict(reloaded(learner.state_dict()))
    assert torch.equal(learn(other, some[num_steps:]), learn(learner, some[num_steps:]))
    assert (
        torch.equal(other.flat.master, learner.flat.master)
        and other.nonfinite_guard.take() == learner.nonfinite_guard.take()
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["plain", "natural gradient", "over time"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("is_due", [False, True], ids=["", "at an update"])
def test_non_finite_minibatch_changes_nothing(device, case, bad, is_due):
    """It is counted with its layers and its step. Later steps are finite, and F is updated again."""
    learner = make_learner(device, True, period=4, **CASES[case])
    some = minibatches(learner, FIRST + 20)
    num_before = FIRST + (7 if is_due else 6)
    learn(learner, some[:num_before])
    before = learner.flat.master.clone()
    assert case == "plain" or learner._captured.sides[0].update_is_due() == is_due
    x, pdfs = some[num_before]
    x = x.clone()
    x[3 % len(x), ..., 2] = bad
    counts = learner.step(x, pdfs, RATE)
    # a saturated unit maps infinity to a number
    assert counts.isfinite().all() and (bad == math.inf or not counts.any())
    assert torch.equal(learner.flat.master, before)
    number, names, last = learner.nonfinite_guard.take()
    assert (number, last) == (1, num_before + 1) and names[0] == learner.components[0].name
    assert learn(learner, some[num_before + 1 :])[:, 0].min() > 0
    assert learner.flat.master.isfinite().all() and not torch.equal(learner.flat.master, before)
    assert learner.nonfinite_guard.take()[0] == 0
    for side in learner._captured.sides:
        assert side.num_minibatches == len(some)
    for pending in learner.state_dict()["pending"]:
        assert pending[0].isfinite().all() and all(mix.isfinite().all() for mix, _, _ in pending[1])


def test_output_layer_with_padded_rows(monkeypatch):
    """As on a GPU, where the number of rows is a multiple of 64: results are equal to rounding, with zeros
    behind the parameters."""
    usual = make_learner("cpu", True)
    some = minibatches(usual, FIRST + 10)
    expected = learn(usual, some)
    monkeypatch.setattr(flat, "_multiple_of_rows", lambda _device: flat.GPU_ROWS)
    filled = make_learner("cpu", True)
    assert len(filled.flat.padded(filled.flat.grad)[-1]) > len(filled.flat.values()[-1])
    assert len(filled.flat.master) == len(usual.flat.master)
    torch.testing.assert_close(learn(filled, some), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(filled.flat.master, usual.flat.master, rtol=1e-4, atol=1e-5)
    memory = filled.flat.work.untyped_storage()
    behind = torch.tensor([], dtype=filled.flat.work.dtype).set_(memory)[len(filled.flat.work) :]
    assert len(behind) and not behind.any()


@pytest.mark.parametrize(
    "case, kind",
    [
        ("plain", PlainPasses),
        ("natural gradient", PlainPasses),
        ("one hidden layer", PlainPasses),
        ("rates of parts", PlainPasses),
        ("momentum", LayersPasses),
        ("limits", LayersPasses),
        ("limit per sample", LayersPasses),
        ("normalised", LayersPasses),
        ("over time", LayersPasses),
    ],
)
def test_explicit_passes_are_chosen_for_plain_networks(case, kind):
    learner = make_learner(
        "cpu", True, **{name: value for name, value in CASES[case].items() if name != "rate"}
    )
    learn(learner, minibatches(learner, FIRST + 1))
    assert type(learner._captured.passes) is kind


@pytest.mark.parametrize(
    "reason, options",
    [
        ("", dict()),
        ("", CASES["limits"]),
        ("", CASES["recurrent"]),
        ("dropout", dict(dnn=dict(dropout=0.2))),
        ("l2", dict(l2=0.1)),
        ("within minibatches", dict(kind="simple")),
        ("single factors", dict(layers=["lstm cells=6 peepholes=true natural-peepholes=true"])),
        ("the network has dropout, l2", dict(l2=0.1, dnn=dict(dropout=0.2))),
    ],
)
def test_reasons_against_capture(reason, options):
    found = reasons_not_captured(make_learner("cpu", False, **options))
    assert reason in found and bool(found) == bool(reason)


def test_gradients_summed_over_ranks_are_not_captured():
    learner = make_learner("cpu", False)
    learner.gradient_sum = object()
    assert reasons_not_captured(learner) == "gradients are summed over ranks"


def test_cpu_does_not_capture():
    learner = make_learner("cpu", False)
    learner.adopt(learner.network)
    assert not learner.is_captured


def test_distribution_targets_use_plain_step():
    learner = make_learner("cpu", True, kind="none")
    ((x, pdfs),) = minibatches(learner, 1)
    everywhere = torch.arange(len(pdfs))
    learner.step(x, SoftTargets(everywhere, pdfs, torch.ones(len(pdfs)), pdfs), RATE)
    assert learner._captured is None and learner.nonfinite_guard.take()[0] == 0


def test_plain_step_drops_pending_update():
    """As in a job that resumes without a GPU, and then on a GPU again."""
    learner, other = make_learner("cpu", True), make_learner("cpu", False)
    some = minibatches(learner, FIRST + 3)
    learn(learner, some[:-1])
    assert learner.state_dict()["pending"]
    other.load_state_dict(reloaded(learner.state_dict()))
    assert other.state_dict()["pending"]
    learn(other, some[-1:])
    assert other.state_dict()["pending"] is None


def test_other_network_is_captured_again():
    """Such as a grown network; the layers of the previous one no longer have a lag."""
    learner = make_learner("cpu", True, layers=TDNN)
    some = minibatches(learner, FIRST + 1)
    learn(learner, some)
    sides = learner._captured.sides
    assert sides and all(side.lagged for side in sides)
    learner.adopt(LayeredNetwork(TDNN, DIM, NUM_PDFS))
    assert learner._captured is None and not any(side.lagged for side in sides)


@pytest.mark.parametrize("num_steps", [20, 33])
def test_interrupted_job_gives_same_bits(tmp_path, num_steps):
    """With checkpoints on disk."""
    online = NaturalGradientOptions(natural_gradient="online")
    options = with_options(
        learner=dict(natural_gradient=online),
        schedule=dict(learning_rate=0.02),
        loop=dict(checkpoint_frames=100, train_seed=SEED),
    )

    def job(name):
        found = training(SoloComm(), tmp_path / name, store(10), options)
        found.learner.is_captured = True
        return found

    whole = job("whole")
    whole.run()
    assert isinstance(whole.learner._captured, CapturedStep)
    broken = job("broken")
    crash_after(broken, num_steps)
    with pytest.raises(Crash):
        broken.run()
    resumed = job("broken")
    resumed.run()
    assert torch.equal(resumed.learner.flat.master, whole.learner.flat.master)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["plain", "natural gradient", "momentum", "limits", "over time"])
def test_no_step_waits_for_gpu(case, precision):
    """After the graphs are captured; torch raises an error if a step waits."""
    options = {name: value for name, value in CASES[case].items() if name != "rate"}
    learner = make_learner("cuda", True, period=4, precision=precision, **options)
    some = minibatches(learner, FIRST + 3 * len(SIZES))
    learn(learner, some[: FIRST + 2 * len(SIZES)])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for x, pdfs in some[FIRST + 2 * len(SIZES) :]:
            learner.step(x, pdfs, RATE)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert learner.flat.master.isfinite().all()
