"""Explicit passes of a plain feed-forward network against autograd and the layers' own natural gradient in
float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.nn.layers.lagged_natural_gradient import HostInput, LaggedNaturalGradient
from pyasr.nn.layers.natural_gradient import NUM_FIRST_UPDATES
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts, initialise
from pyasr.nn.networks.feed_forward_pass import FeedForwardPass, SideGroups, is_plain
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.tensor.step_kernels import Verdict

DIM, HIDDEN, NUM_PDFS, PADDING, NUM_ROWS = 17, 24, 13, 3, 32
RATE = 0.25


def make_network(activation: str, hidden_layers: int) -> FeedForward:
    options = DnnOptions(hidden_layers=hidden_layers, hidden_dim=HIDDEN, activation=activation)
    generator = torch.Generator().manual_seed(0)
    network = FeedForward(options, DIM, NUM_PDFS)
    initialise(network, options, generator)
    with torch.no_grad():
        network.layers[-1].weight.normal_(0, 0.1, generator=generator)
        network.layers[-1].bias.normal_(0, 0.1, generator=generator)
    return network.double()


def padded(parameter: Tensor) -> Tensor:
    """The tensor with rows of zeros appended."""
    return torch.cat([parameter, parameter.new_zeros(PADDING, *parameter.shape[1:])])


def parameters_in_memory(network: FeedForward) -> list[Tensor]:
    """Weights and biases of all layers in one vector. Those of the output layer have padding rows."""
    *hidden, weight, bias = (parameter.detach() for parameter in network.parameters())
    tensors = [*hidden, padded(weight), padded(bias)]
    vector, places, begin = torch.cat([tensor.flatten() for tensor in tensors]), [], 0
    for tensor in tensors:
        places.append(vector[begin : begin + tensor.numel()].view(tensor.shape))
        begin += tensor.numel()
    return places


def minibatches(num: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(NUM_ROWS, DIM, generator=generator, dtype=torch.float64),
            torch.randint(NUM_PDFS, (NUM_ROWS,), generator=generator),
        )
        for _ in range(num)
    ]


def by_autograd(network: nn.Module, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, correct frames); gradients are stored in the parameters."""
    network.zero_grad()
    logits = network(x)
    loss = F.cross_entropy(logits, targets, reduction="sum")
    loss.backward()
    return loss.detach(), (logits.argmax(1) == targets).sum()


def groups_of(natural_gradient) -> SideGroups:
    layers = list(natural_gradient.layers.values())
    inputs, outputs = [layer.input for layer in layers], [layer.output for layer in layers]

    def group(sides, ones, width):
        return LaggedNaturalGradient(sides, ones, width, torch.float64)

    return SideGroups(
        group(inputs[:1], True, DIM),
        group(inputs[1:], True, HIDDEN),
        group(outputs[:-1], False, HIDDEN),
        group(outputs[-1:], False, NUM_PDFS + PADDING),
    )


def make_verdict(groups: SideGroups | None, num_layers: int) -> Verdict:
    return Verdict(
        [torch.zeros_like(group.traces) for group in groups or ()],
        torch.zeros(num_layers, dtype=torch.float64),
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(num_layers + 2, dtype=torch.int64),
    )


def take_answers(groups: SideGroups) -> None:
    for group in groups:
        if (taken := group.take()) is not None:
            group.mix.copy_(torch.from_numpy(taken[0]))
            group.inverse_units[:, 0, 0] = torch.from_numpy(taken[1])


def answer(groups: SideGroups) -> None:
    for group in groups:
        group.start_solving(
            HostInput(
                group.gram.numpy().copy(),
                group.traces.numpy().copy(),
                group.inverse_units[:, 0, 0].numpy().copy(),
                NUM_ROWS,
            )
        )


@dataclasses.dataclass
class Case:
    """A network for autograd, with natural gradient of update period 1 after its first minibatches, and its
    explicit passes."""

    network: FeedForward
    passes: FeedForwardPass
    groups: SideGroups | None

    def step(self, x: Tensor, targets: Tensor) -> Verdict:
        if self.groups:
            take_answers(self.groups)
        self.passes.x.copy_(x)
        self.passes.targets.copy_(targets)
        verdict = make_verdict(self.groups, len(self.passes.weights))
        self.passes.gradients(
            verdict, torch.tensor(RATE, dtype=torch.float64), torch.tensor(5), self.groups is not None
        )
        if self.groups:
            answer(self.groups)
        return verdict


def make_case(activation: str = "sigmoid", kind: str = "online", hidden_layers: int = 3) -> Case:
    def trained() -> tuple[FeedForward, SideGroups | None]:
        network = make_network(activation, hidden_layers)
        natural_gradient = precondition(
            network, NaturalGradientOptions(natural_gradient=kind, ng_update_period=1)
        )
        for minibatch in minibatches(NUM_FIRST_UPDATES + 1):
            by_autograd(network, *minibatch)
        return network, groups_of(natural_gradient) if kind == "online" else None

    network, (_, groups) = trained()[0], trained()
    places = parameters_in_memory(network)
    gradients = [torch.full_like(place, 7.0) for place in parameters_in_memory(network)]
    return Case(network, FeedForwardPass(network, NUM_ROWS, places, gradients, groups), groups)


def check_layer(found: Tensor, expected: Tensor) -> None:
    assert not found[len(expected) :].any()
    assert (found[: len(expected)] - expected).norm() < 1e-12 * expected.norm()


@pytest.mark.parametrize("hidden_layers", [1, 3])
@pytest.mark.parametrize("kind", ["none", "online"])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_pass_equals_autograd(activation, kind, hidden_layers):
    """Gradients times factors, losses and counts are equal. Old contents of the gradients have no effect;
    padding rows are zero."""
    case = make_case(activation, kind, hidden_layers)
    for x, targets in minibatches(5):
        loss, correct = by_autograd(case.network, x, targets)
        verdict = case.step(x, targets)
        assert verdict.counts.tolist() == pytest.approx([float(loss), float(correct), NUM_ROWS], rel=1e-13)
        assert case.passes.losses.sum() == pytest.approx(float(loss), rel=1e-13)
        assert not verdict.nonfinite_counts.any()
        for layer, factor, *found in zip(
            case.network.affine_layers,
            verdict.factors,
            case.passes.by_weights,
            case.passes.by_biases,
            strict=True,
        ):
            for gradient, parameter in zip(found, (layer.weight, layer.bias)):
                check_layer(factor * gradient, -RATE * parameter.grad)


def test_evenly_spaced_gradients_are_one_product():
    """For gradients in one vector, as in training, and for separate ones."""
    apart, together = make_case(), make_case()
    vector = torch.full(
        (sum(place.numel() for place in together.passes.weights + together.passes.biases),),
        7.0,
        dtype=torch.float64,
    )
    begin, places = 0, []
    for place in parameters_in_memory(together.network):
        places.append(vector[begin : begin + place.numel()].view(place.shape))
        begin += place.numel()
    together.passes.by_weights, together.passes.by_biases = places[::2], places[1::2]
    minibatch = minibatches(1)[0]
    apart.step(*minibatch), together.step(*minibatch)
    for found, expected in zip(
        together.passes.by_weights + together.passes.by_biases,
        apart.passes.by_weights + apart.passes.by_biases,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["none", "online"])
def test_non_finite_gradients_have_no_factor(kind):
    """In any layer. All parts that are not finite are counted, and the number of the step is recorded."""
    case = make_case(kind=kind)
    x, targets = minibatches(1)[0]
    x[3, 4] = float("nan")
    verdict = case.step(x, targets)
    assert (
        not verdict.factors.any()
        and not verdict.counts.any()
        and verdict.nonfinite_counts.tolist() == [1, 1, 1, 1, 1, 5]
    )


def test_rows_without_target_have_no_derivatives():
    x, targets = minibatches(1)[0]
    whole, part = make_case(kind="none"), make_case(kind="none")
    x[NUM_ROWS // 2 :] = 0
    targets[NUM_ROWS // 2 :] = -100
    part.step(x, targets)
    by_autograd(whole.network, x[: NUM_ROWS // 2], targets[: NUM_ROWS // 2])
    for layer, by_weight in zip(whole.network.affine_layers, part.passes.by_weights):
        check_layer(by_weight, layer.weight.grad)


def plain(**options) -> FeedForward:
    return FeedForward(DnnOptions(**{"hidden_layers": 2, "hidden_dim": 20, **options}), DIM, NUM_PDFS)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("hidden_layers", [1, 4])
def test_plain_networks_are_recognised(activation, hidden_layers):
    network = plain(activation=activation, hidden_layers=hidden_layers)
    assert is_plain(network)
    precondition(network, NaturalGradientOptions(natural_gradient="online"))
    assert is_plain(network)


@pytest.mark.parametrize("network", [
    plain(dropout=0.2),
    plain(normalize=True),
    plain(activation="pnorm", pnorm_group=2),
    plain(hidden_layers=0),
    FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), DIM, NUM_PDFS,
                FixedParts(transform=torch.zeros(DIM, DIM + 1))),
    FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), DIM, NUM_PDFS,
                FixedParts(prior_scales=torch.ones(NUM_PDFS))),
    FeedForward(DnnOptions(hidden_layers=1, hidden_dim=8), DIM, NUM_PDFS,
                FixedParts(extras=torch.tensor([1, 2]))),
    LayeredNetwork(["tdnn dim=12 splice=-1..1"], DIM, NUM_PDFS),
    nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)),
], ids=["dropout", "normalisation", "p-norm", "no hidden layer", "transform", "scaled outputs",
        "several outputs of a pdf", "layers over time", "another class"])  # fmt: skip
def test_other_networks_are_not_plain(network):
    assert not is_plain(network)
