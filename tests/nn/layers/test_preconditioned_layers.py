"""Gradients that preconditioned layers compute, against autograd and plain formulas."""

import copy
import logging

import pytest
import torch
from torch import nn

from pyasr.base.errors import UserError
from pyasr.nn.layers.natural_gradient import OnlineNaturalGradient, precondition_within_minibatch
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, _tell_once, precondition

ONLINE = NaturalGradientOptions(natural_gradient="online")
SIMPLE = NaturalGradientOptions(natural_gradient="simple")
NO_LIMIT = NaturalGradientOptions(
    max_change_per_sample=1e30
)  # options with which layers are preconditioned without effect


def affine_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5, bias=False)), torch.randn(
        12, 6, dtype=torch.float64
    )


def sequence_net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), torch.randn(
        3, 7, 6, dtype=torch.float64
    )


def image_net():
    layers = (
        nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0)),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, dilation=2, bias=False),
    )
    return nn.Sequential(*layers), torch.randn(3, 2, 9, 14, dtype=torch.float64)


def signal_net():
    layers = nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.Tanh(), nn.Conv1d(4, 3, 2, dilation=2)
    return nn.Sequential(*layers), torch.randn(3, 2, 20, dtype=torch.float64)


def vector_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5)), torch.randn(6, dtype=torch.float64)


def single_image_net():
    return image_net()[0], torch.randn(2, 9, 14, dtype=torch.float64)


def single_signal_net():
    return signal_net()[0], torch.randn(2, 20, dtype=torch.float64)


def same_size_net():
    """Kernels of even sizes are padded by one more at the end."""
    layers = (
        nn.Conv2d(2, 4, (4, 3), padding="same", dilation=(1, 2)),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, padding="valid"),
    )
    return nn.Sequential(*layers), torch.randn(3, 2, 9, 14, dtype=torch.float64)


def mirrored_net():
    mirrored = nn.Conv2d(2, 4, 3, padding=(2, 1), padding_mode="reflect")
    circular = nn.Conv2d(4, 3, (2, 4), padding="same", padding_mode="circular")
    return nn.Sequential(mirrored, nn.Tanh(), circular), torch.randn(3, 2, 9, 14, dtype=torch.float64)


def same_length_net():
    layers = (
        nn.Conv1d(2, 4, 4, padding="same", dilation=3),
        nn.Tanh(),
        nn.Conv1d(4, 3, 2, padding=3, padding_mode="replicate"),
    )
    return nn.Sequential(*layers), torch.randn(3, 2, 20, dtype=torch.float64)


NETS = [affine_net, sequence_net, image_net, signal_net, vector_net, single_image_net, single_signal_net]
NETS += [same_size_net, mirrored_net, same_length_net]


def gradients(net, x, steps=1):
    """Gradients of the parameters and the input, after some steps with the same loss."""
    x = x.clone().requires_grad_()
    for _ in range(steps):
        net.zero_grad()
        x.grad = None
        net(x).cos().sum().backward()
    return [p.grad.clone() for p in net.parameters()] + [x.grad]


@pytest.mark.parametrize("make", NETS)
def test_gradients_without_preconditioning_equal_autograd(make):
    torch.manual_seed(3)
    net, x = make()
    net.double()
    expected = gradients(net, x)
    precondition(net, NO_LIMIT).set_rate(1.0)
    torch.testing.assert_close(gradients(net, x), expected)


@pytest.mark.parametrize("make", NETS)
def test_outputs_and_input_derivatives_are_unchanged(make):
    torch.manual_seed(3)
    net, x = make()
    net.double()
    output, by_input = net(x), gradients(net, x)[-1]
    precondition(net, ONLINE)
    assert torch.equal(net(x), output)
    torch.testing.assert_close(gradients(net, x)[-1], by_input)


def rows_of(net, x, index):
    """(X, Y) of layer `index` of `net` for the loss of `gradients`, without the column of ones."""
    before = net[:index](x).detach()
    after = net[index](before).detach().requires_grad_()
    net[index + 1 :](after).cos().sum().backward()
    if after.dim() < 4:
        return before.flatten(0, -2), after.grad.flatten(0, -2)
    conv = net[index]
    patches = nn.functional.unfold(before, conv.kernel_size, conv.dilation, conv.padding, conv.stride)
    return patches.transpose(1, 2).flatten(0, 1), after.grad.flatten(2).transpose(1, 2).flatten(0, 1)


@pytest.mark.parametrize("options", [ONLINE, SIMPLE], ids=lambda o: o.natural_gradient)
@pytest.mark.parametrize("make", [affine_net, sequence_net, image_net])
def test_gradient_is_preconditioned_on_both_sides(make, options):
    torch.manual_seed(3)
    net, x = make()
    net.double()
    plain = copy.deepcopy(net)
    precondition(net, options)
    found = gradients(net, x, steps=2)
    x0, y = rows_of(plain, x, 0)
    sides = torch.cat([x0, torch.ones(len(x0), 1, dtype=x0.dtype)], 1), y
    if options is SIMPLE:
        preconditioned = [precondition_within_minibatch(side) for side in sides]
    else:
        ranks = (x0.shape[1] + 1) // 2, (y.shape[1] + 1) // 2
        states = [OnlineNaturalGradient(rank) for rank in ranks]
        preconditioned = [
            [state.precondition(side) for _ in range(2)][-1] for state, side in zip(states, sides)
        ]
    (xhat, g_in), (yhat, g_out) = preconditioned
    expected = g_in * g_out * yhat.T @ xhat
    torch.testing.assert_close(found[0].flatten(1), expected[:, :-1])
    torch.testing.assert_close(found[1], expected[:, -1])


def test_convolution_equals_affine_layer_on_patches():
    torch.manual_seed(3)
    conv, linear = nn.Conv2d(2, 4, 3), nn.Linear(18, 4)
    linear.load_state_dict({"weight": conv.weight.flatten(1), "bias": conv.bias})
    x = torch.randn(5, 2, 8, 8)
    for layer in (conv, linear):
        precondition(layer, ONLINE)
    for _ in range(3):
        conv.zero_grad(), linear.zero_grad()
        conv(x).cos().sum().backward()
        linear(nn.functional.unfold(x, 3).transpose(1, 2)).cos().sum().backward()
    torch.testing.assert_close(conv.weight.grad.flatten(1), linear.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(conv.bias.grad, linear.bias.grad, rtol=1e-4, atol=1e-4)


def test_change_per_sample_is_limited():
    """The factor of nnet2 by a loop over frames."""
    torch.manual_seed(3)
    net, x = affine_net()
    net.double()
    rate, limit = 0.5, 0.01
    x0, y = rows_of(net, x, 0)
    free = gradients(net, x)
    precondition(net, NaturalGradientOptions(max_change_per_sample=limit)).set_rate(rate)
    limited = gradients(net, x)
    bound = sum((frame.square().sum() + 1).sqrt() * derivative.norm() for frame, derivative in zip(x0, y))
    factor = min(1, limit * len(x) / (rate * bound))
    assert 0.001 < factor < 0.9
    torch.testing.assert_close(limited[0], factor * free[0])
    torch.testing.assert_close(limited[1], factor * free[1])
    change = torch.cat([limited[0], limited[1][:, None]], 1).norm() * rate
    assert change <= limit * len(x)


@pytest.mark.parametrize("options", [ONLINE, SIMPLE], ids=["online", "simple"])
def test_overflowing_factors_give_non_finite_gradients(options):
    """As without preconditioning, so that the check of the gradient detects them."""
    layer = nn.Linear(4, 3)
    precondition(layer, options)
    torch.manual_seed(3)
    layer.preconditioner.accumulate(
        1e25 * torch.randn(9, 4), 1e25 * torch.randn(9, 3), layer.weight, layer.bias
    )
    assert not layer.weight.grad.isfinite().any()


@pytest.mark.parametrize("options", [ONLINE, SIMPLE, NO_LIMIT], ids=["online", "simple", "none"])
def test_gradients_of_two_passes_are_added(options):
    """Two backward passes through a layer, also within one graph, give the sum of both."""
    torch.manual_seed(3)
    layer = nn.Linear(6, 6).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    twice = copy.deepcopy(layer)
    for net in (layer, twice):
        precondition(net, options).set_rate(1.0)
    layer(x).cos().sum().backward()
    first = layer.weight.grad.clone()
    layer.zero_grad()
    layer(2 * x).cos().sum().backward()
    (twice(x).cos().sum() + twice(2 * x).cos().sum()).backward()
    if options is not ONLINE:  # a case in which the order of the two matters
        torch.testing.assert_close(twice.weight.grad, first + layer.weight.grad)
    assert twice.weight.grad.norm() > 0


def test_ranks_are_limited_by_layer_sizes():
    class Odd(nn.Linear):
        """A layer with an arbitrary forward."""

    convolutions = (
        nn.Conv2d(4, 8, 3, groups=2),
        nn.ConvTranspose2d(4, 8, 3),
        nn.Conv2d(4, 30, 3, padding="same"),
    )
    net = nn.ModuleList([nn.Linear(30, 7), nn.Linear(200, 300), Odd(5, 5), nn.LayerNorm(5), *convolutions])
    layers = precondition(net, ONLINE).layers
    assert {name: (layer.input.rank, layer.output.rank) for name, layer in layers.items()} == {
        "0": (15, 4),
        "1": (20, 80),
        "6": (18, 15),
    }
    assert isinstance(net[0], nn.Linear) and type(net[2]) is Odd and type(net[4]) is nn.Conv2d
    assert precondition(nn.Linear(3, 3), NaturalGradientOptions()).layers == {}


PLAIN = (
    "these layers have plain gradients, neither preconditioned nor limited: 2 (LSTM), 4 (Conv2d of 2 groups)"
)
LOWER = "are above half of some dimensions; ranks of their layers, inputs/outputs:"


@pytest.mark.parametrize(
    "options, sentences",
    [
        (ONLINE, [PLAIN, f"--ng-rank-in 20 and --ng-rank-out 80 {LOWER} 0 15/4"]),
        (
            NaturalGradientOptions(natural_gradient="online", ng_rank_in=1000, ng_rank_out=4),
            [PLAIN, f"--ng-rank-in 1000 and --ng-rank-out 4 {LOWER} 0 15/4, 1 100/4"],
        ),
        (SIMPLE, [PLAIN]),
        (NaturalGradientOptions(), []),
    ],
    ids=["defaults", "high rank", "simple", "none"],
)
def test_log_names_plain_layers_and_reduced_ranks_once(caplog, options, sentences):
    _tell_once.cache_clear()
    caplog.set_level(logging.INFO, "pyasr")
    net = nn.ModuleList(
        [nn.Linear(30, 7), nn.Linear(200, 300), nn.LSTM(3, 3), nn.LayerNorm(5), nn.Conv2d(4, 8, 3, groups=2)]
    )
    for _ in range(2):
        precondition(net, options)
    assert caplog.messages == sentences


def test_log_is_silent_for_regular_layers(caplog):
    _tell_once.cache_clear()
    caplog.set_level(logging.INFO, "pyasr")
    precondition(nn.Sequential(nn.Linear(200, 300), nn.BatchNorm1d(300), nn.Linear(300, 160)), ONLINE)
    assert not caplog.messages


def autocast_gradients(net, x, whole=False):
    """(output, gradients of the parameters and the input) of a step under bfloat16 autocast; with `whole`,
    the backward pass is included."""
    x = x.float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        output = net(x)
        loss = output.float().cos().sum()
        if whole:
            loss.backward()
    if not whole:
        loss.backward()
    return output, [p.grad for p in net.parameters()] + [x.grad]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("make", [affine_net, sequence_net, image_net, same_length_net])
def test_types_under_autocast_equal_plain_layers(make, whole):
    """Without preconditioning, gradients equal those of plain layers; with it, they are close to those in
    float32."""
    torch.manual_seed(3)
    net, x = make()
    plain, limited, wide = (copy.deepcopy(net) for _ in range(3))
    precondition(limited, NO_LIMIT).set_rate(1.0)
    (expected, by_autograd) = autocast_gradients(plain, x)
    (output, found) = autocast_gradients(limited, x, whole)
    assert output.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(output, expected)
    for one, other in zip(found, by_autograd):
        assert one.dtype == other.dtype == torch.float32 and (one - other).norm() < 0.03 * other.norm()
    precondition(net, ONLINE), precondition(wide, ONLINE)
    for one, other in zip(autocast_gradients(net, x, whole)[1], gradients(wide, x.float())):
        assert (one - other).norm() < 0.1 * other.norm()


def test_float16_is_preconditioned_in_float32():
    """Products of data with a scaled loss would exceed its range."""
    torch.manual_seed(3)
    narrow = nn.Linear(6, 8).half()
    wide = copy.deepcopy(narrow).float()
    x, y = 1000 * torch.randn(40, 6), torch.randn(40, 8)
    for layer in (narrow, wide):
        precondition(layer, ONLINE)
        for _ in range(3):
            layer.zero_grad()
            layer.preconditioner.accumulate(
                x.to(layer.weight.dtype), y.to(layer.weight.dtype), layer.weight, layer.bias
            )
    assert narrow.weight.grad.dtype == torch.float16
    torch.testing.assert_close(narrow.weight.grad.float(), wide.weight.grad, rtol=0.01, atol=50)


def test_untrained_layers_are_unchanged():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    state = precondition(net, ONLINE)
    net(torch.randn(9, 4)).sum().backward()
    assert net[0].weight.grad is None and net[1].weight.grad is not None
    assert state.layers["0"].state_dict() == {"input": {}, "output": {}}


def test_network_preconditioned_again_starts_with_new_state():
    """For example a network that has grown by some layers."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    old = precondition(net, ONLINE)
    net(torch.randn(9, 4)).sum().backward()
    net.append(nn.Linear(4, 3))
    new = precondition(net, ONLINE)
    assert list(new.layers) == ["0", "2"] and new.layers["0"] is not old.layers["0"]
    net(torch.randn(9, 4)).sum().backward()
    assert old.layers["0"].input.num_minibatches == new.layers["0"].input.num_minibatches == 1


def test_state_of_other_layers_is_refused():
    state = precondition(nn.Linear(4, 4), ONLINE).state_dict()
    with pytest.raises(
        UserError, match="natural gradient of the layers .*, but the network has 0, 1; give --force"
    ):
        precondition(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), ONLINE).load_state_dict(
            state, torch.device("cpu")
        )


def test_bfloat16_is_close_to_float32():
    torch.manual_seed(3)
    net, x = sequence_net()
    narrow = copy.deepcopy(net).bfloat16()
    for one in (net, narrow):
        precondition(one, ONLINE)
    for found, expected in zip(gradients(narrow, x.bfloat16(), 12), gradients(net, x.float(), 12)):
        assert found.dtype == torch.bfloat16 and (found.float() - expected).norm() < 0.05 * expected.norm()
