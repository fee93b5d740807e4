"""The factorised layer against torch's own operations, finite differences, and the statistics of its
dropout."""

import pytest
import torch
import torch.nn.functional as F

from pyasr.nn.dropout import ByteDropout, SequenceDropout
from pyasr.nn.networks.kinds.tdnn_kinds import TdnnOptions
from pyasr.nn.networks.kinds.tdnnf_kind import TdnnfOptions
from pyasr.nn.networks.layered import LayeredNetwork

DIM, BOTTLENECK = 10, 4


def layer_of(dtype=torch.float64, dim_in: int = DIM, **options):
    options = TdnnfOptions(dim=DIM, bottleneck_dim=BOTTLENECK, **options)
    layer, generator = options.build(dim_in), torch.Generator().manual_seed(1)
    options.initialise(layer, False, generator)
    layer.affine.bias.data.normal_(generator=generator)
    return layer.to(dtype)


def frames(num: int, dim: int = DIM) -> torch.Tensor:
    return torch.randn(
        num, 3, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True
    )


def by_convolutions(layer, x: torch.Tensor, time_stride: int, bypass_scale: float) -> torch.Tensor:
    """(T, N, D) by dilated convolutions of two frames each, and a bypass without the frames at both ends."""
    taps, last = (2, len(x) - time_stride) if time_stride else (1, len(x))
    m, w = (
        weight.view(len(weight), taps, -1).transpose(1, 2)
        for weight in (layer.linear.weight, layer.affine.weight)
    )
    h = x.permute(1, 2, 0)
    b = F.conv1d(h, m, dilation=max(time_stride, 1))
    y = F.conv1d(b, w, layer.affine.bias, dilation=max(time_stride, 1)).clamp(min=0)
    y = (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    return (y + bypass_scale * h[:, :, time_stride:last] if bypass_scale else y).permute(2, 0, 1)


@pytest.mark.parametrize(
    "time_stride, bypass_scale, dim_in", [(1, 0.66, DIM), (3, 0.66, DIM), (0, 0.75, DIM), (2, 0.0, 7)]
)
def test_outputs_and_derivatives_equal_torch(time_stride, bypass_scale, dim_in):
    layer = layer_of(dim_in=dim_in, time_stride=time_stride, bypass_scale=bypass_scale).eval()
    x = frames(11, dim_in)
    assert (layer.left, layer.right, layer.stride) == (time_stride, time_stride, 1)
    y, expected = layer(x), by_convolutions(layer, x, time_stride, bypass_scale)
    torch.testing.assert_close(y, expected)
    inputs = [x, *layer.parameters()]
    direction = torch.randn_like(y)
    for ours, theirs in zip(
        torch.autograd.grad(y, inputs, direction), torch.autograd.grad(expected, inputs, direction)
    ):
        torch.testing.assert_close(ours, theirs)


def test_derivatives_equal_finite_differences():
    layer = layer_of(time_stride=1).eval()
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (frames(5), *layer.parameters()))


def test_subsampled_output_equals_every_nth_frame():
    """The output of a layer without subsampling has the same values at these frames."""
    layer, x = layer_of(time_stride=0, stride=3).eval(), frames(8)
    torch.testing.assert_close(layer(x), by_convolutions(layer, x, 0, 0.66)[::3])


def test_dropout_precedes_bypass():
    """So the factors are those of y - f h."""
    layer, x = layer_of(time_stride=1, dropout=0.3), frames(9)
    plain = layer.eval()(x) - 0.66 * x[1:-1]
    found = layer.train()(x) - 0.66 * x[1:-1]
    factors = found[0] / plain[0]
    torch.testing.assert_close(found, plain * factors)
    assert factors.min() >= 0.4 and factors.max() <= 1.6 and factors.std() > 0.1


def test_variance_over_frames_dominates_in_deep_stacks():
    """After many layers, nearly all of the output's variance is between frames."""
    lines = [
        "tdnn splice=-2..2 dim=64 layer-norm=true",
        "tdnnf dim=64 bottleneck-dim=16 repeat=11",
        "affine dim=64 layer-norm=true",
    ]
    network = LayeredNetwork(lines, DIM, 7)
    network.initialise(torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = network.hidden(frames(80).float().transpose(0, 1)).flatten(0, 1)
    assert y.var(0, correction=0).sum() > 0.9 * y.square().mean(0).sum()
    torch.testing.assert_close(y.mean(1), torch.zeros(len(y)), rtol=0, atol=1e-5)
    torch.testing.assert_close(y.var(1, correction=0), torch.ones(len(y)), rtol=1e-3, atol=0)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_factors_are_uniform(share):
    """Uniform in [1 - 2 p, 1 + 2 p]: mean, variance (4 p)^2 / 12, limits; the same at all times, different
    for each sequence and unit."""
    torch.manual_seed(5)
    dropout = SequenceDropout(share)
    factors = dropout(torch.ones(4, 200, 500))
    assert torch.equal(factors, factors[:1].expand_as(factors))
    values = factors[0].double()
    assert values.mean() == pytest.approx(1, abs=4 * share / 100)
    assert values.var() == pytest.approx((4 * share) ** 2 / 12, rel=0.02)
    assert (
        1 - 2 * share <= values.min() < 1 - 1.99 * share and 1 + 1.99 * share < values.max() <= 1 + 2 * share
    )
    between_units = torch.corrcoef(values)[0, 1:].abs().mean()
    between_sequences = torch.corrcoef(values.T)[0, 1:].abs().mean()
    assert between_units < 0.1 and between_sequences < 0.1


def test_tdnn_layers_support_continuous_dropout():
    options = TdnnOptions(dim=6, splice="-1..1", activation="tanh", dropout=0.3, dropout_per_dim=True)
    layer, x = options.build(DIM).double(), frames(7)
    options.initialise(layer, False, torch.Generator().manual_seed(1))
    factors = layer.train()(x) / layer.eval()(x)
    torch.testing.assert_close(factors, factors[:1].expand_as(factors))
    assert 0.4 <= factors.min() < 0.9 and 1.1 < factors.max() <= 1.6


@pytest.mark.parametrize("kind", [SequenceDropout, ByteDropout])
def test_no_dropout_draws_no_random_numbers(kind):
    x, before = torch.ones(2, 3, 4), torch.get_rng_state()
    assert kind(0.0)(x) is x and kind(0.3).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), before)
