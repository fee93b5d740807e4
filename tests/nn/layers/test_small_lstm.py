"""Small layers, whose loop over frames is one kernel on a CPU, equal the same layers in float64, whose loop
has operations of torch."""

import copy

import pytest
import torch

from pyasr.nn.layers.lstm import Lstm, LstmState
from pyasr.nn.layers.sequence_layers import Recurrent
from pyasr.tensor import lstm_small

T, D, H = 7, 5, 8
SHAPES = [
    dict(),
    dict(bias=False, peepholes=True),
    dict(cell_clip=0.4),
    dict(gradient_clip=0.5),
    dict(peepholes=True, cell_clip=0.4, delay=2, gradient_clip=0.5),
]


@pytest.fixture
def calls(monkeypatch):
    """Names of the functions of `lstm_small` in the order of their calls."""
    names = []

    def watch(name):
        function = getattr(lstm_small, name)
        monkeypatch.setattr(
            lstm_small, name, lambda *given, **named: names.append(name) or function(*given, **named)
        )

    watch("forward")
    watch("backward")
    return names


def drawn(layer, seed=1):
    random = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 1, generator=random)
    return layer


def noise(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_both_types(function, module, *tensors):
    """Results of `function(module, *tensors)` in float32 and in float64, gradients of all tensors and
    parameters included."""
    results = []
    for dtype in (torch.float32, torch.float64):
        copied = copy.deepcopy(module).to(dtype)
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
        outputs = function(copied, *leaves)
        loss = sum((out * noise(*out.shape, seed=3 + i).to(dtype)).sum() for i, out in enumerate(outputs))
        results.append([*outputs, *torch.autograd.grad(loss, [*leaves, *copied.parameters()])])
    return results


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one.double() - other).norm() <= 2e-6 * max(1.0, other.norm())


@pytest.mark.parametrize("lengths", [None, [7, 5, 1]])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_directions_equal_float64(shape, lengths, calls):
    layer = drawn(Recurrent([Lstm(D, H, backward=backward, **shape) for backward in (False, True)]))
    lengths = lengths and torch.tensor(lengths)
    found, expected = in_both_types(lambda layer, x: [layer.of_lengths(x, lengths)], layer, noise(T, 3, D))
    assert calls == ["forward", "backward"]
    assert_close(found, expected)


@pytest.mark.parametrize("num_sequences", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_with_state_equals_float64(shape, num_sequences, calls):
    """A layer that continues from a state; the state after some frames has a derivative, too."""
    lstm, end = drawn(Lstm(D, H, **shape)), 4
    states = [noise(lstm.delay, num_sequences, H, seed=seed) for seed in (8, 9)]

    def outputs(lstm, x, r, c):
        y, after = lstm(x, LstmState(r, c), end)
        return [y, *after]

    found, expected = in_both_types(outputs, lstm, noise(T, num_sequences, D), *states)
    assert calls == ["forward", "backward"]
    assert_close(found, expected)


def test_directions_of_different_shapes_equal_float64(calls):
    layer = drawn(Recurrent([Lstm(D, H), Lstm(D, 2 * H, backward=True, cell_clip=0.4)]))
    found, expected = in_both_types(lambda layer, x: [layer(x)], layer, noise(T, 3, D))
    assert calls == ["forward"] * 2 + ["backward"] * 2
    assert_close(found, expected)


@pytest.mark.parametrize(
    "arguments, num_sequences",
    [((H, 4), 2), ((6,), 2), ((132,), 1), ((128,), 17)],
    ids=["projection", "odd", "large", "many"],
)
def test_other_layers_use_operations_of_torch(arguments, num_sequences, calls):
    layer = drawn(Recurrent([Lstm(D, *arguments)]))
    layer(noise(T, num_sequences, D)).sum().backward()
    layer.double()(noise(T, num_sequences, D).double()).sum().backward()
    assert not calls


def test_nonfinite_values_reach_the_gradient(calls):
    """A training skips minibatches by these values."""
    layer, x = drawn(Recurrent([Lstm(D, H)])), noise(T, 2, D)
    x[3, 1, 0] = float("nan")
    y = layer(x)
    assert y[:, 0].isfinite().all() and y[:3].isfinite().all() and y[3:, 1].isnan().all()
    y.sum().backward()
    assert calls == ["forward", "backward"] and layer.directions[0].recurrent.weight.grad.isnan().any()
