"""Layers in flat parameters, and parts with separate learning rates, against dense SGD in float64."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.train.evolve.growth import with_new_layer
from pyasr.train.sgd.components import components_of
from pyasr.train.sgd.learner import Learner, LearnerOptions, limits_of

DIM, NUM_PDFS, NUM_RANKS = 10, 7, 4
OPTIONS = LearnerOptions(precision="float32", device="cpu", output_bias_rate=0.1, last_layers_rate=0.5)
LIMITED = dict(momentum=0.7, l2=0.01, max_change=0.2, max_change_per_layer=0.12)
RATES = [1.0, 1.0, 0.5, 0.5, 0.5, 0.05]  # of weights and biases of 3 layers


def network(activation="relu"):
    dnn = DnnOptions(hidden_layers=2, hidden_dim=12, activation=activation)
    made = FeedForward(dnn, DIM, NUM_PDFS)
    initialise(made, dnn, torch.Generator().manual_seed(3))
    nn.init.normal_(made.layers[-1].weight, generator=torch.Generator().manual_seed(4))
    return made


def minibatch(seed, num=40):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, DIM, generator=generator), torch.randint(NUM_PDFS, (num,), generator=generator)


def plain(options):
    return dataclasses.replace(options, output_bias_rate=1.0, last_layers_rate=1.0)


def change(options, num_steps=1, rate=1e-3):
    """The change of each parameter by some minibatches."""
    learner = Learner(network(), options, NUM_RANKS)
    before = [value.clone() for value in learner.flat.values()]
    for seed in range(num_steps):
        x, pdfs = minibatch(seed)
        learner.step(x.to(learner.flat.work.dtype), pdfs, rate)
    return [value - old for value, old in zip(learner.flat.values(), before)]


def dense_sgd(options, num_steps, rate):
    """The same by the formulas, for each parameter separately, with autograd in float64."""
    values = [p.detach().double().requires_grad_() for p in network().parameters()]
    before, velocity = [p.detach().clone() for p in values], [torch.zeros_like(p) for p in values]
    for seed in range(num_steps):
        x, pdfs = minibatch(seed)
        h = x.double()
        for weight, bias in zip(values[0:-2:2], values[1:-2:2]):
            h = torch.relu(h @ weight.T + bias)
        loss = F.cross_entropy(h @ values[-2].T + values[-1], pdfs, reduction="sum")
        slopes = torch.autograd.grad(
            loss + len(x) * options.l2 / NUM_RANKS * sum(p.square().sum() for p in values), values
        )
        velocity = [options.momentum * v - rate * slope for v, slope in zip(velocity, slopes)]
        rated = [(1 - options.momentum) * f * v for f, v in zip(RATES, velocity)]
        for first in range(0, len(rated), 2):
            length = torch.cat([part.flatten() for part in rated[first : first + 2]]).norm()
            if options.max_change_per_layer and length > options.max_change_per_layer:
                rated[first : first + 2] = [
                    part * options.max_change_per_layer / length for part in rated[first : first + 2]
                ]
        length = torch.cat([part.flatten() for part in rated]).norm()
        scale = min(1.0, float(options.max_change / length)) if options.max_change else 1.0
        values = [(p + scale * part).detach().requires_grad_() for p, part in zip(values, rated)]
    return [(p - old).detach().float() for p, old in zip(values, before)]


@pytest.mark.parametrize(
    "fields", [dict(), dict(momentum=0.7), dict(l2=0.01), LIMITED], ids=["sgd", "momentum", "l2", "all"]
)
@pytest.mark.parametrize("rate", [1e-3, 1e-2])
def test_equals_dense_sgd_with_rate_per_parameter(fields, rate):
    options = dataclasses.replace(OPTIONS, **fields)
    for found, expected in zip(change(options, 6, rate), dense_sgd(options, 6, rate)):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["none", "online", "simple"])
def test_step_equals_plain_step_times_rates(precision, kind):
    """Also with preconditioning, which must not see the rates, and in the fused update."""
    options = dataclasses.replace(
        OPTIONS, precision=precision, natural_gradient=NaturalGradientOptions(natural_gradient=kind)
    )
    for found, free, rate in zip(change(options), change(plain(options)), RATES):
        torch.testing.assert_close(found, rate * free, rtol=1e-4, atol=1e-7)


def test_change_limit_per_sample_is_independent_of_rates():
    """If nnet2's limit reduces a layer's update, the result has the same length for all rates of the
    layer."""
    options = dataclasses.replace(
        plain(OPTIONS), natural_gradient=NaturalGradientOptions(max_change_per_sample=1e-6)
    )
    halved = change(dataclasses.replace(options, last_layers_rate=0.5))
    for found, expected in zip(halved, change(options)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-9)


def test_gradient_limit_per_sample_is_applied_before_rate():
    """As in Su and Chen's code: if the limit reduces a layer's gradient, the length of the change is
    proportional to the rate."""
    options = dataclasses.replace(
        OPTIONS, natural_gradient=NaturalGradientOptions(max_gradient_per_sample=1e-3)
    )
    of_change = NaturalGradientOptions(max_change_per_sample=1e-3)
    free = dataclasses.replace(plain(OPTIONS), natural_gradient=of_change)
    for once, twice, limited, rate in zip(
        change(options, rate=1.0), change(options, rate=2.0), change(free, rate=1.0), RATES
    ):
        torch.testing.assert_close(once, rate * limited, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(twice, 2 * once, rtol=1e-3, atol=1e-6)
        assert once.abs().max() > 1e-5


def test_rate_of_zero_freezes_component():
    changes = change(dataclasses.replace(OPTIONS, output_bias_rate=0.0, **LIMITED), 3)
    assert not changes[-1].any() and all(part.any() for part in changes[:-1])


def test_rates_follow_last_layers_of_growing_network():
    learner = Learner(network("tanh"), OPTIONS)
    learner.adopt(with_new_layer(learner.network.with_parameters(learner.flat.values()), torch.Generator()))
    assert [component.rate for component in learner.components] == [1.0, 1.0, 0.5, 0.5]


def test_equal_rates_give_one_part_per_layer():
    flat = FlatParameters(network().parameters())
    components = components_of(network(), flat.spans)
    assert all(component.parts == [(component.span, 1.0)] for component in components)
    assert [component.name for component in components] == ["layers.0", "layers.2", "layers.4"]
    assert sum(component.span.stop - component.span.start for component in components) >= flat.num_parameters


def test_rates_of_networks_with_few_layers():
    for layers, rates in ((1, [0.5]), (2, [0.5, 0.5]), (3, [1.0, 0.5, 0.5])):
        net = nn.Sequential(*(nn.Linear(3, 3, bias=layer < 2) for layer in range(layers)))
        found = components_of(net, FlatParameters(net.parameters()).spans, 0.1, 0.5)
        assert [component.rate for component in found] == rates
        assert len(found[-1].parts) == (2 if layers < 3 else 1)


@pytest.mark.parametrize(
    "last",
    [
        "blstm cells=4",
        "lstm cells=4 recurrent=3 peepholes=true",
        "tdnnf dim=6 bottleneck-dim=3",
        "affine dim=6",
    ],
)
def test_layer_with_several_matrices_counts_once(last):
    net = LayeredNetwork(["blstm cells=3", last], DIM, NUM_PDFS)
    found = components_of(net, FlatParameters(net.parameters()).spans, 0.1, 0.5)
    assert {component.name.startswith("layers.0.") for component in found if component.rate == 1.0} == {True}
    assert all(
        component.rate == 0.5 for component in found if component.name.startswith(("layers.1", "output"))
    )
    assert [component.name for component in found if component.is_output] == ["output"]
    assert [rate for _, rate in found[-1].parts] == [0.5, 0.05]


def test_both_output_layers_are_recognised():
    net = TwoOutputs(LayeredNetwork(["affine dim=6", "affine dim=6"], DIM, NUM_PDFS), 0.1)
    found = components_of(net, FlatParameters(net.parameters()).spans, 0.1, 0.5)
    assert [component.name for component in found if component.is_output] == ["second", "main.output"]
    assert {component.name: component.rate for component in found if component.rate == 1.0}.keys() == {
        component.name for component in found if component.name.startswith("main.layers.0")
    }
    assert all(found[place].parts[-1][1] == 0.05 for place in (0, -1))
    options = dataclasses.replace(OPTIONS, max_change_per_layer=0.75, max_change_of_output=1.5)
    assert limits_of(found, options, torch.device("cpu")).tolist() == [1.5] + [0.75] * (len(found) - 2) + [
        1.5
    ]
