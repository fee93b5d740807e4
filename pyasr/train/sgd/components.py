"""Components of a network's layers in its flat parameters; their parts with separate learning rates."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from dataclasses import dataclass

import torch
from torch import nn

from pyasr.tensor.squares import Number, sum_of_squares

Part = tuple[slice, float]
_LAYER = re.compile(r".*?\blayers\.\d+")  # prefix of the names of modules within a layer


@dataclass(frozen=True)
class Component:
    """The parameters of one module: a layer, or one of the matrices of a layer that has several.

    name       name of the module in its network
    span       slice of the parameters in the flat buffers
    parts      slices and their learning rates, relative to that of the network; a single one if all of the
               component has one rate
    is_output  whether the module is an output layer
    """

    name: str
    span: slice
    parts: list[Part]
    is_output: bool

    @property
    def rate(self) -> float:
        """The relative learning rate of the component's matrix."""
        return self.parts[0][1]

    def square(self, delta: torch.Tensor) -> Number:
        """|f Delta|^2 of the component, with f the relative rates."""
        squares = [_scaled(sum_of_squares(delta[span]), rate * rate) for span, rate in self.parts]
        return functools.reduce(operator.add, squares)

    def scaled(self, factor: torch.Tensor) -> list[tuple[slice, torch.Tensor]]:
        """Each part's slice, and `factor` times its relative rate."""
        return [(span, _scaled(factor, rate)) for span, rate in self.parts]


def _scaled(value: Number, rate: float) -> Number:
    """The product; a rate of 1, the usual case, takes no operation on the device."""
    return value if rate == 1.0 else value * rate


def components_of(
    network: nn.Module, spans: list[slice], output_bias_rate: float = 1.0, last_layers_rate: float = 1.0
) -> list[Component]:
    """The components of `network`: each module that has parameters of its own, in the order of the flat
    buffers.

    spans             slice of each parameter in the flat buffers
    output_bias_rate  relative rate of the biases of output layers: the modules of `network.output_names`,
                      else the last module
    last_layers_rate  relative rate of output layers and of the layer before them, biases included
    """
    owned = [
        (*name.rpartition(".")[::2], span) for name, span in zip(dict(network.named_parameters()), spans)
    ]
    modules = {
        module: [member[1:] for member in members]
        for module, members in itertools.groupby(owned, lambda member: member[0])
    }
    outputs = getattr(network, "output_names", list(modules)[-1:])
    hidden = [_layer(module) for module in modules if module not in outputs]
    components = []
    for module, members in modules.items():
        is_output = module in outputs
        of_layer = last_layers_rate if is_output or _layer(module) == hidden[-1] else 1.0
        of_bias = output_bias_rate if is_output else 1.0
        parts = [(span, of_layer * (of_bias if name == "bias" else 1.0)) for name, span in members]
        components.append(
            Component(
                module, _joined(parts), [(_joined(group), rate) for rate, group in _by_rate(parts)], is_output
            )
        )
    return components


def _layer(module: str) -> str:
    """The name of the layer that a module is or belongs to."""
    return found[0] if (found := _LAYER.match(module)) else module


def _by_rate(parts: list[Part]) -> list[tuple[float, list[Part]]]:
    """Groups of adjacent parts with equal rates."""
    return [(rate, list(group)) for rate, group in itertools.groupby(parts, lambda part: part[1])]


def _joined(parts: list[Part]) -> slice:
    """The slice from the first part to the last."""
    return slice(parts[0][0].start, parts[-1][0].stop)
