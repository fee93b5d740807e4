"""One minibatch's update against the formulas."""

import copy
import dataclasses
import math

import pytest
import torch

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.sgd.learner import Learner, LearnerOptions, change_factors

OPTIONS = LearnerOptions(precision="float32", device="cpu")
ONLINE = dataclasses.replace(OPTIONS, natural_gradient=NaturalGradientOptions(natural_gradient="online"))


def make_learner(options: LearnerOptions, num_ranks: int = 1) -> Learner:
    dnn = DnnOptions(hidden_layers=1, hidden_dim=24)
    network = FeedForward(dnn, 10, 7)
    initialise(network, dnn, torch.Generator().manual_seed(3))
    return Learner(network, options, num_ranks)


def minibatch(seed: int = 3, num: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, 10, generator=generator), torch.randint(7, (num,), generator=generator)


def step(learner: Learner, rate: float, seed: int = 3) -> torch.Tensor:
    x, pdfs = minibatch(seed)
    return learner.step(x.to(learner.flat.work.dtype), pdfs, rate)


def change(options: LearnerOptions, rate: float, num_steps: int = 1) -> torch.Tensor:
    """The change of the network by `num_steps` equal minibatches."""
    learner = make_learner(options)
    before = learner.flat.master.clone()
    for _ in range(num_steps):
        step(learner, rate)
    return learner.flat.master - before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_change_of_minibatch_is_limited(precision):
    options = dataclasses.replace(OPTIONS, precision=precision)
    free = change(options, 0.05)
    limited = change(dataclasses.replace(options, max_change=0.1), 0.05)
    assert free.norm() > 0.3
    assert limited.norm() == pytest.approx(0.1, rel=1e-3)
    torch.testing.assert_close(limited / limited.norm(), free / free.norm(), rtol=1e-3, atol=1e-5)


def test_small_changes_are_not_limited():
    free = change(OPTIONS, 1e-4, num_steps=5)
    limited = change(
        dataclasses.replace(OPTIONS, max_change=10.0, max_change_per_layer=9.0), 1e-4, num_steps=5
    )
    torch.testing.assert_close(limited, free)


def test_momentum_sums_earlier_gradients():
    """Two equal gradients g, because of the tiny rate: half of g + (0.5 g + g)."""
    first = change(OPTIONS, 1e-6)
    torch.testing.assert_close(
        change(dataclasses.replace(OPTIONS, momentum=0.5), 1e-6, num_steps=2),
        1.25 * first,
        rtol=0.02,
        atol=1e-8,
    )


@pytest.mark.parametrize(
    "limits, overall",
    [([0.3, 0.3, 0.3, 0.6], 0.5), ([0.3] * 4, 0.0), ([math.inf] * 3 + [0.6], 0.0), (None, 0.5), (None, 0.0)],
)
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_limits_equal_nnet3(limits, overall, momentum):
    """UpdateNnetWithMaxChange, layer by layer."""
    lengths = [0.1, 2.0, 0.0, 5.0]
    scale, factors, total = 1 - momentum, [], 0.0
    for length, limit in zip(lengths, limits or [math.inf] * 4):
        factor = 1.0
        if length * scale > limit:
            factor = limit / (length * scale)
        factors.append(factor)
        total += (factor * length) ** 2
    total = scale * math.sqrt(total)
    if overall and total > overall:
        scale *= overall / total
    expected = torch.tensor([scale * factor for factor in factors], dtype=torch.float64)
    limits = None if limits is None else torch.tensor(limits, dtype=torch.float64)
    torch.testing.assert_close(
        change_factors(torch.tensor(lengths, dtype=torch.float64), limits, overall, momentum), expected
    )


@pytest.mark.parametrize("hidden, output", [(0.05, 0.0), (0.004, 0.02), (0.0, 0.02)])
@pytest.mark.parametrize("options", [OPTIONS, ONLINE], ids=["plain", "online"])
def test_limits_are_per_layer(options, hidden, output):
    """The second layer, which has the larger gradient, is limited; layers are in `components`. The output
    layer may have its own limit."""
    rate = 0.005
    free = change(options, rate)
    learner = make_learner(
        dataclasses.replace(options, max_change_per_layer=hidden, max_change_of_output=output)
    )
    before = learner.flat.master.clone()
    step(learner, rate)
    assert [component.name for component in learner.components] == ["layers.0", "layers.2"]
    for component, limit in zip(learner.components, [hidden or math.inf, output or hidden]):
        moved = (learner.flat.master - before)[component.span]
        expected = free[component.span] * min(1.0, limit / max(free[component.span].norm().item(), 1e-30))
        torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_l2_penalty_is_divided_by_ranks(momentum):
    """Kaldi: theta -= 2 lr l2 N theta, divided by P on each of P ranks."""
    rate, l2, num_ranks = 1e-3, 0.1, 4
    options = dataclasses.replace(OPTIONS, momentum=momentum)
    plain, penalised = make_learner(options), make_learner(dataclasses.replace(options, l2=l2), num_ranks)
    before = plain.flat.master.clone()
    step(plain, rate), step(penalised, rate)
    expected = plain.flat.master - (1 - momentum) * 2 * rate * l2 / num_ranks * 64 * before
    torch.testing.assert_close(penalised.flat.master, expected)


def test_l2_penalty_of_chunks_equals_kaldi():
    """nnet3's ApplyL2Regularization adds -2 k lr times the parameters for each sequence of the minibatch.
    Here every frame of a chunk adds its share of k. Nothing else changes parameters without targets."""
    k, rate, chunks, frames = 1.0, 1e-3, 7, 20
    network = LayeredNetwork(["tdnn dim=12 splice=-1..1"], 10, 5)
    network.initialise(torch.Generator().manual_seed(3))
    learner = Learner(network, dataclasses.replace(OPTIONS, l2=k / frames))
    before = learner.flat.master.clone()
    learner.step(torch.randn(chunks, 1 + frames + 1, 10), torch.full((chunks, frames), NO_TARGET), rate)
    torch.testing.assert_close(
        learner.flat.master - before, -2 * k * rate * chunks * before, rtol=1e-3, atol=1e-9
    )
    help_text = LearnerOptions.__dataclass_fields__["l2"].metadata["help"]
    assert (
        help_text.startswith("penalty per frame ")
        and "(nnet3's value divided by the outputs of a chunk)" in help_text
    )


@pytest.mark.parametrize(
    "fields", [dict(), dict(momentum=0.9), dict(max_change=1.0, max_change_per_layer=0.5), dict(l2=0.1)]
)
@pytest.mark.parametrize("options", [OPTIONS, ONLINE], ids=["plain", "online"])
def test_non_finite_gradients_change_nothing(options, fields):
    """The minibatch is counted, its layers are named, and training continues as without it, except that
    momentum starts from zero."""
    learner = make_learner(dataclasses.replace(options, **fields))
    step(learner, 1e-3, seed=1)
    before = learner.flat.master.clone()
    x, pdfs = minibatch(2)
    x[5, 2] = math.nan
    assert not learner.step(x, pdfs, 1e-3).any()
    assert torch.equal(learner.flat.master, before) and not learner.flat.grad.any()
    assert learner.velocity is None or not learner.velocity.any()
    assert learner.nonfinite_guard.take() == (1, ["layers.0", "layers.2"], 2)
    step(learner, 1e-3, seed=4)
    assert learner.flat.master.isfinite().all() and not torch.equal(learner.flat.master, before)
    assert learner.nonfinite_guard.take()[:2] == (0, [])


def test_natural_gradient_learns_faster():
    """Inputs have a common offset of 5, which dominates plain gradients; each method has the best of several
    rates."""
    x, pdfs = minibatch(num=512)
    pdfs = (x @ torch.randn(10, 7, generator=torch.Generator().manual_seed(9))).argmax(1)

    def final_loss(options, rate):
        learner = make_learner(options)
        for _ in range(60):
            loss = learner.step(x + 5, pdfs, rate)[0].item() / 512
        return loss if math.isfinite(loss) else math.inf

    plain, online = (
        min(final_loss(options, rate) for rate in (1e-5, 1e-4, 5e-4, 2e-3)) for options in (OPTIONS, ONLINE)
    )
    assert online < 0.7 * plain


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["none", "online", "simple"])
def test_resumed_learner_gives_same_bits(precision, kind):
    options = dataclasses.replace(
        OPTIONS,
        momentum=0.5,
        l2=1e-4,
        max_change=1.0,
        max_change_per_layer=0.75,
        precision=precision,
        natural_gradient=NaturalGradientOptions(natural_gradient=kind, max_change_per_sample=0.05),
    )
    whole = make_learner(options)
    for seed in range(13):
        step(whole, 1e-3, seed)
    master, state = whole.flat.master.clone(), copy.deepcopy(whole.state_dict())
    resumed = make_learner(options)
    resumed.flat.master.copy_(master)
    resumed.flat.refresh()
    resumed.load_state_dict(state)
    for learner in (whole, resumed):
        for seed in range(13, 20):
            step(learner, 1e-3, seed)
    assert torch.equal(whole.flat.master, resumed.flat.master)
