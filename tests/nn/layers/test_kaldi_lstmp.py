"""LSTM layers like Kaldi's LSTMP: initial values, projections with biases, natural gradient for peepholes."""

import pytest
import torch

from pyasr.nn.layers import preconditioned_layers
from pyasr.nn.layers.lstm import Lstm
from pyasr.nn.layers.natural_gradient import OnlineNaturalGradient, precondition_within_minibatch
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.networks.layered import LayeredNetwork, parse_line
from pyasr.parallel.mixing.flat import FlatParameters

KALDIS = "cells=64 recurrent=32 nonrecurrent=32 peepholes=true projection-bias=true init=kaldi"
ONLINE = NaturalGradientOptions(natural_gradient="online", ng_rank_in=3, ng_rank_out=5)


def initialised(text: str, seed: int = 1, dim_in: int = 40) -> list[Lstm]:
    (line,) = parse_line(text)
    layer = line.options.build(dim_in)
    line.options.initialise(layer, True, torch.Generator().manual_seed(seed))
    return list(layer.directions)


def check_normal(x: torch.Tensor, stddev: float) -> None:
    """Check mean, standard deviation, and the fraction within one standard deviation, to within 5 standard
    errors."""
    z, size = x.double().flatten() / stddev, x.numel()
    assert abs(z.mean()) < 5 * size**-0.5 and abs(z.std() - 1) < 5 * (2 * size) ** -0.5
    assert abs((z.abs() < 1).double().mean() - 0.6827) < 5 * (0.6827 * 0.3173 / size) ** 0.5


@pytest.mark.parametrize("kind", ["lstm", "blstm", "window-blstm"])
def test_initial_values_equal_kaldi(kind):
    for lstm in initialised(f"{kind} {KALDIS}"):
        check_normal(lstm.input.weight, (40 + 32) ** -0.5)
        check_normal(lstm.recurrent.weight, (40 + 32) ** -0.5)
        check_normal(lstm.projection.weight, 64**-0.5)
        for bias in (lstm.input.bias, lstm.projection.bias, lstm.peepholes):
            check_normal(bias, 1.0)
        for bias in lstm.input.bias.chunk(4):
            check_normal(bias, 1.0)


def test_initial_values_equal_kaldi_without_optional_parts():
    (lstm,) = initialised("lstm cells=64 bias=false init=kaldi")
    check_normal(lstm.input.weight, (40 + 64) ** -0.5)
    check_normal(lstm.recurrent.weight, (40 + 64) ** -0.5)
    assert lstm.input.bias is None and lstm.projection is None and lstm.peepholes is None


def test_initial_values_depend_on_seed_and_direction():
    (forward, backward), (again, _), (other, _) = (initialised(f"blstm {KALDIS}", seed) for seed in (1, 1, 2))
    for name, value in forward.named_parameters():
        assert torch.equal(value, again.get_parameter(name))
        assert not torch.equal(value, backward.get_parameter(name)) and not torch.equal(
            value, other.get_parameter(name)
        )


def test_default_initial_values_are_uniform():
    (lstm,) = initialised(
        "lstm cells=64 recurrent=32 peepholes=true projection-bias=true init=0.25 forget-bias=2"
    )
    for weight in (lstm.input.weight, lstm.recurrent.weight, lstm.projection.weight):
        assert weight.abs().max() <= 0.25 and abs(weight.std() - 0.25 / 3**0.5) < 0.005
    assert torch.equal(lstm.input.bias.chunk(4)[1], torch.full((64,), 2.0))
    assert lstm.input.bias.sum() == 128 and not lstm.projection.bias.any()


def test_projection_bias_is_added_to_output_and_recurrence():
    layer, x = Lstm(3, 4, 2, 1, projection_bias=True).double(), torch.randn(1, 2, 3, dtype=torch.float64)
    plain = Lstm(3, 4, 2, 1).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    (y, state), (without, before) = layer(x), plain(x)
    torch.testing.assert_close(y, without + layer.projection.bias)
    torch.testing.assert_close(state.r, before.r + layer.projection.bias[:2])


def test_natural_gradient_of_projections_with_biases():
    """It equals that of an affine layer with the same inputs and derivatives, without derivatives from later
    frames."""
    layer, peer = Lstm(3, 4, 2, 1, projection_bias=True), torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(layer.recurrent.weight)
    x, seen = torch.randn(7, 2, 3), []
    layer.watch = lambda gates, cells: seen.append((gates, cells))
    precondition(layer, ONLINE), precondition(peer, ONLINE)
    dy = torch.randn(7, 2, 3)
    layer(x)[0].backward(dy)
    ((gates, cells),) = seen
    m = gates.chunk(4, 2)[3] * cells.tanh()
    peer(m.flatten(0, 1).detach()).backward(dy.flatten(0, 1))
    torch.testing.assert_close(layer.projection.weight.grad, peer.weight.grad)
    torch.testing.assert_close(layer.projection.bias.grad, peer.bias.grad)


def peepholes_of(natural: bool) -> tuple[Lstm, torch.Tensor]:
    layer = Lstm(5, 20, 6, 4, peepholes=True, natural_peepholes=natural)
    random = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=random)
    return layer, torch.randn(3, 8, 6, 5, generator=random)


def derivatives_of_frames(layer: Lstm, x: torch.Tensor) -> list[torch.Tensor]:
    """Derivatives by the three peepholes in each frame of each sequence, (T N, H), by autograd with separate
    copies for every frame."""
    copies = layer.peepholes.detach().expand(len(x), x.shape[1], -1, -1).clone().requires_grad_()
    r, c, total = x.new_zeros(x.shape[1], 6), x.new_zeros(x.shape[1], 20), 0.0
    for x_t, p in zip(x, copies):
        i, f, g, o = (layer.input(x_t) + layer.recurrent(r)).chunk(4, 1)
        c = torch.sigmoid(f + p[:, 1] * c) * c + torch.sigmoid(i + p[:, 0] * c) * torch.tanh(g)
        y = layer.projection(torch.sigmoid(o + p[:, 2] * c) * torch.tanh(c))
        r, total = y[:, :6], total + y.square().sum()
    (grad,) = torch.autograd.grad(total, copies)
    return list(grad.flatten(0, 1).unbind(1))


def test_natural_gradient_of_peepholes():
    """Three minibatches: derivatives of frames are the preconditioned rows, with Kaldi's rank and period."""
    plain, (layer, minibatches) = peepholes_of(False)[0], peepholes_of(True)
    assert (preconditioned_layers.FACTORS_RANK, preconditioned_layers.FACTORS_UPDATE_PERIOD) == (8, 10)
    peers = [OnlineNaturalGradient(8, ONLINE.ng_alpha, ONLINE.ng_num_samples_history, 10) for _ in range(3)]
    found = precondition(layer, ONLINE)
    assert (
        list(found.layers) == ["", "input", "recurrent", "projection"]
        and "" not in precondition(plain, ONLINE).layers
    )
    FlatParameters(layer.parameters())
    for x in minibatches:
        wanted = []
        for peer, rows in zip(peers, derivatives_of_frames(peepholes_of(False)[0], x)):
            xhat, scale = peer.precondition(rows)
            wanted.append(xhat.sum(0) * scale)
        for one in (plain, layer):
            one.zero_grad(set_to_none=False)
            one(x)[0].square().sum().backward()
        torch.testing.assert_close(layer.peepholes.grad, torch.stack(wanted), rtol=2e-3, atol=2e-3)
        assert (layer.peepholes.grad - plain.peepholes.grad).norm() > 0.1 * plain.peepholes.grad.norm()


def test_natural_gradient_of_peepholes_resumes_from_its_state():
    (one, (x, y, z)), (other, _) = peepholes_of(True), peepholes_of(True)
    first, second = precondition(one, ONLINE), precondition(other, ONLINE)
    for some in (x, y):
        one(some)[0].square().sum().backward()
    second.load_state_dict(first.state_dict(), torch.device("cpu"))
    for layer in (one, other):
        layer.zero_grad()
        layer(z)[0].square().sum().backward()
    assert torch.equal(one.peepholes.grad, other.peepholes.grad)


@pytest.mark.parametrize(
    "options",
    [NaturalGradientOptions(natural_gradient="simple"), NaturalGradientOptions(max_change_per_sample=1e30)],
)
def test_peepholes_with_other_gradient_preconditioners(options):
    """In the simple form, rows precondition each other within the minibatch. Without natural gradient, they
    are unchanged."""
    layer, (x, *_) = peepholes_of(True)
    rows = derivatives_of_frames(peepholes_of(False)[0], x)
    precondition(layer, options).set_rate(1.0)
    layer(x)[0].square().sum().backward()
    if options.natural_gradient == "simple":
        pairs = [precondition_within_minibatch(part, options.ng_alpha) for part in rows]
        rows = [xhat * scale for xhat, scale in pairs]
    torch.testing.assert_close(
        layer.peepholes.grad, torch.stack([part.sum(0) for part in rows]), rtol=1e-3, atol=1e-3
    )


def test_only_networks_with_the_option_use_it():
    networks = [LayeredNetwork([f"lstm {KALDIS} {more}"], 8, 3) for more in ("", "natural-peepholes=true")]
    names = [set(precondition(network, ONLINE).layers) for network in networks]
    assert names[1] - names[0] == {"layers.0.directions.0"} and names[0] < names[1]
