"""Clipped derivatives through time against the equations frame by frame in float64, with clipping in
autograd."""

import pytest
import torch

from pyasr.nn.layers import lstm
from pyasr.nn.layers.lstm import Lstm, LstmState
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.layers.sequence_layers import Recurrent, WindowRecurrent
from pyasr.nn.networks.layered import LayeredNetwork

T, N, D, H = 12, 3, 5, 4
BOTH = dict(recurrent_dim=2, nonrecurrent_dim=3, projection_bias=True)  # projections of Kaldi's LSTMP
SHAPES = [
    BOTH,
    dict(**BOTH, peepholes=True, delay=2),
    dict(**BOTH, peepholes=True, cell_clip=0.5, backward=True),
    dict(recurrent_dim=3),
    dict(recurrent_dim=3, delay=3, projection_bias=True),
    dict(),
    dict(peepholes=True, delay=2),
    dict(backward=True, bias=False),
]
BITES, BITES_SELDOM, NEVER_BITES = 0.5, 1.2, 1e3


def layer_of(seed=1, **shape) -> Lstm:
    """A layer with weights large enough for derivatives to grow."""
    layer, random = Lstm(D, H, **shape).double(), torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 1, generator=random)
    return layer


def inputs() -> torch.Tensor:
    return torch.randn(
        T, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    ).requires_grad_()


class Limited(torch.autograd.Function):
    """Identity whose derivatives are clipped like those of Kaldi's ClipGradientComponent. It reports for each
    vector whether it was clipped."""

    @staticmethod
    def forward(ctx, x, limit, report):
        ctx.limit, ctx.report = limit, report
        return x.clone()

    @staticmethod
    def backward(ctx, dx):
        lengths = [float(row.square().sum().sqrt()) for row in dx]
        ctx.report += [length > ctx.limit for length in lengths]
        rows = [row * (ctx.limit / length) if length > ctx.limit else row for row, length in zip(dx, lengths)]
        return torch.stack(rows), None, None


def by_equations(layer: Lstm, x: torch.Tensor, limit: float, expected_text: list) -> torch.Tensor:
    """All c_t and all recurrent inputs pass through `Limited`; so do outputs that are also recurrent
    inputs."""
    x = x.flip(0) if layer.backward else x
    rs, cs = [x.new_zeros(N, layer.recurrent_dim)] * layer.delay, [x.new_zeros(N, H)] * layer.delay
    ys, p = [], layer.peepholes if layer.peepholes is not None else x.new_zeros(3, H)
    is_all_fed_back = layer.projection is not None and layer.output_dim == layer.recurrent_dim
    for x_t in x:
        before = cs[-layer.delay]
        i, f, g, o = (layer.input(x_t) + layer.recurrent(rs[-layer.delay])).chunk(4, 1)
        c = torch.sigmoid(f + p[1] * before) * before + torch.sigmoid(i + p[0] * before) * torch.tanh(g)
        c = c.clamp(-layer.cell_clip, layer.cell_clip) if layer.cell_clip else c
        c = Limited.apply(c, limit, expected_text)
        m = torch.sigmoid(o + p[2] * c) * torch.tanh(c)
        y = m if layer.projection is None else layer.projection(m)
        r = Limited.apply(y[:, : layer.recurrent_dim], limit, expected_text)
        rs, cs, ys = [*rs, r], [*cs, c], [*ys, r if is_all_fed_back else y]
    y = torch.stack(ys)
    return y.flip(0) if layer.backward else y


def gradients(layer: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    layer.zero_grad()
    x.grad = None
    (
        y * torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).to(y)
    ).sum().backward()
    return [x.grad.clone(), *(parameter.grad.clone() for parameter in layer.parameters())]


def own(limit: float, shape: dict) -> list[torch.Tensor]:
    layer, x = layer_of(**shape, gradient_clip=limit), inputs()
    return gradients(layer, x, layer(x)[0])


def expected(limit: float, shape: dict) -> tuple[list[torch.Tensor], list[bool]]:
    layer, x, output = layer_of(**shape), inputs(), []
    return gradients(layer, x, by_equations(layer, x, limit, output)), output


def check_equal(found, wanted) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def check_near(found, wanted, tolerance: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("limit", [BITES, BITES_SELDOM])
@pytest.mark.parametrize("shape", SHAPES)
def test_clipped_derivatives_equal_equations(shape, limit):
    wanted, report = expected(limit, shape)
    assert 0 < sum(report) < len(report)
    check_equal(own(limit, shape), wanted)
    assert (own(0.0, shape)[0] - wanted[0]).norm() > 0.01 * wanted[0].norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_unreached_limit_changes_nothing(shape):
    wanted, report = expected(NEVER_BITES, shape)
    assert not any(report)
    check_equal(own(NEVER_BITES, shape), wanted)
    check_equal(own(NEVER_BITES, shape), own(0.0, shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_on_cpu_and_bfloat16_are_close(shape):
    """They have separate loops."""
    wanted = own(BITES, shape)
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 0.04)):
        layer = layer_of(**shape, gradient_clip=BITES).to(dtype)
        x = inputs().detach().to(dtype).requires_grad_()
        check_near(gradients(layer, x, layer(x)[0]), wanted, tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_non_finite_derivatives_stay_non_finite(dtype):
    for worst in (float("nan"), float("inf")):
        layer = layer_of(**BOTH, gradient_clip=BITES).to(dtype)
        x = inputs().detach().to(dtype).requires_grad_()
        y = layer(x)[0]
        dy = torch.zeros_like(y)
        dy[-1, 0, 0] = worst
        y.backward(dy)
        assert not layer.recurrent.weight.grad.isfinite().all() and x.grad[:, 1:].isfinite().all()


def test_norms_beyond_float32_squares_are_clipped():
    layer, x = layer_of(**BOTH, gradient_clip=BITES).float(), inputs().detach().float().requires_grad_()
    y = layer(x)[0]
    y.backward(torch.full_like(y, 1e25))
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0


@pytest.mark.parametrize("lengths", [[6, 6], [1, 1, 10]])
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_equal_whole_sequence(shape, lengths):
    if shape.get("backward"):
        pytest.skip("it has no parts")
    layer, x, state, parts = layer_of(**shape, gradient_clip=BITES), inputs(), None, []
    for part in x.split(lengths):
        y, state = layer(part, state)
        parts.append(y)
    check_equal(gradients(layer, x, torch.cat(parts)), expected(BITES, shape)[0])


def test_derivatives_of_state_are_clipped():
    layer, x = layer_of(**BOTH, gradient_clip=BITES), inputs()
    state = LstmState(
        *(torch.zeros(1, N, dim, dtype=x.dtype, requires_grad=True) for dim in (layer.recurrent_dim, H))
    )
    layer(x, state)[0].sum().backward()
    assert state.r.grad.norm(dim=2).max() <= BITES * (1 + 1e-9)


def test_sequences_of_different_lengths_equal_single_ones():
    layer, lengths = layer_of(**BOTH, backward=True, gradient_clip=BITES), torch.tensor([T, 5, 1])
    x, alone = inputs(), inputs()
    y, _ = layer(x, lengths=lengths)
    sum(y[:length, n].square().sum() for n, length in enumerate(lengths)).backward()
    sum(layer(alone[:length, n : n + 1])[0].square().sum() for n, length in enumerate(lengths)).backward()
    torch.testing.assert_close(x.grad, alone.grad)


@pytest.mark.parametrize(
    "kind",
    [lambda pair: Recurrent(pair), lambda pair: WindowRecurrent(pair, 2, 1)],
    ids=["blstm", "window-blstm"],
)
def test_both_directions_are_clipped(kind):
    def of(limit):
        layer = kind([layer_of(seed, backward=seed == 2, gradient_clip=limit, **BOTH) for seed in (1, 2)])
        x = inputs()
        return gradients(layer, x, layer(x))

    bounded, free = of(BITES), of(0.0)
    check_equal(of(NEVER_BITES), free)
    assert all((one - other).norm() > 0.02 * other.norm() for one, other in zip(bounded, free))


def test_natural_gradient_preconditions_clipped_derivatives():
    """With preconditioners without effect, the result is the same as without natural gradient, also for
    projections with biases."""
    options = NaturalGradientOptions(max_change_per_sample=1e30)
    for limit in (0.0, BITES):
        plain = layer_of(**BOTH, gradient_clip=limit)
        layer = layer_of(**BOTH, gradient_clip=limit)
        x = inputs()
        precondition(layer, options).set_rate(1.0)
        check_equal(gradients(layer, x, layer(x)[0]), gradients(plain, x, plain(x)[0]))


def test_cudnn_is_used_without_training(monkeypatch):
    monkeypatch.setattr(lstm, "cudnn_supports", lambda x: True)
    layer, x = layer_of(gradient_clip=BITES), inputs()
    assert not layer.is_cudnns(x)
    with torch.no_grad():
        assert layer.is_cudnns(x)
        torch.testing.assert_close(layer(x)[0], layer.remember(layer.input(x))[0])


def test_configured_network_learns_with_limits():
    lines = [
        (
            "lstm cells=6 recurrent=2 nonrecurrent=2 peepholes=true projection-bias=true init=kaldi "
            "clip-gradient=0.01 repeat=2"
        )
    ]
    free = [line.replace("clip-gradient=0.01", "") for line in lines]
    grads = []
    for some in (lines, free):
        network = LayeredNetwork(some, D, 3)
        network.initialise(torch.Generator().manual_seed(1))
        torch.nn.init.normal_(network.output.weight, generator=torch.Generator().manual_seed(1))
        y = network(inputs().detach().float().transpose(0, 1))
        y.square().sum().backward()
        grads.append((y, network.layers[0].directions[0].recurrent.weight.grad))
    assert torch.equal(grads[0][0], grads[1][0]) and grads[0][1].norm() < 0.5 * grads[1][1].norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-3), (torch.bfloat16, 0.04)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_gpu_has_same_limits(shape, dtype, tolerance):
    wanted = own(BITES, shape)
    layer = layer_of(**shape, gradient_clip=BITES).to("cuda", dtype)
    x = inputs().detach().to("cuda", dtype).requires_grad_()
    check_near([gradient.cpu() for gradient in gradients(layer, x, layer(x)[0])], wanted, tolerance)
