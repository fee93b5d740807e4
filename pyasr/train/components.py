"""The layers of a network in its flat parameters, and parts of them that learn at rates of their own."""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass

import torch
from torch import nn

from pyasr.tensor.squares import Number, sum_of_squares

Part = tuple[slice, float]


@dataclass(frozen=True)
class Component:
    """The parameters of one layer.

    name   of the layer in its network
    span   their place in the flat buffers
    parts  places and learning rates, relative to that of the network; a single one where all of the layer learns alike
    """

    name: str
    span: slice
    parts: list[Part]

    @property
    def rate(self) -> float:
        """The relative learning rate of the layer's matrix."""
        return self.parts[0][1]

    def square(self, delta: torch.Tensor) -> Number:
        """|f Delta|^2 of the layer, with f the relative rates."""
        squares = [_scaled(sum_of_squares(delta[span]), rate * rate) for span, rate in self.parts]
        return functools.reduce(operator.add, squares)

    def scaled(self, factor: torch.Tensor) -> list[tuple[slice, torch.Tensor]]:
        """Each part's place and `factor` times its relative rate."""
        return [(span, _scaled(factor, rate)) for span, rate in self.parts]


def _scaled(value: Number, rate: float) -> Number:
    """Their product, without an operation on the device for the usual rate."""
    return value if rate == 1.0 else value * rate


def components_of(network: nn.Module, spans: list[slice], output_bias_rate: float = 1.0, last_layers_rate: float = 1.0) -> list[Component]:
    """The components of `network`, each module that has parameters of its own; they lie one after the other.

    spans             place of each parameter in the flat buffers
    output_bias_rate  relative rate of the biases of the last of them
    last_layers_rate  of the last two, biases included
    """
    owned = [(*name.rpartition(".")[::2], span) for name, span in zip(dict(network.named_parameters()), spans)]
    layers = [(layer, [member[1:] for member in members]) for layer, members in itertools.groupby(owned, lambda member: member[0])]
    components = []
    for place, (layer, members) in enumerate(layers, 1 - len(layers)):
        of_layer, of_bias = last_layers_rate if place >= -1 else 1.0, output_bias_rate if place == 0 else 1.0
        parts = [(span, of_layer * (of_bias if name == "bias" else 1.0)) for name, span in members]
        components.append(Component(layer, _joined(parts), [(_joined(group), rate) for rate, group in _by_rate(parts)]))
    return components


def _by_rate(parts: list[Part]) -> list[tuple[float, list[Part]]]:
    """Neighbours of equal rate together."""
    return [(rate, list(group)) for rate, group in itertools.groupby(parts, lambda part: part[1])]


def _joined(parts: list[Part]) -> slice:
    """From the first to the last."""
    return slice(parts[0][0].start, parts[-1][0].stop)
