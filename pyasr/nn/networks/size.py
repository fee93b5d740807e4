"""Numbers of parameters and products of a network described by a file, without allocating it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from pyasr.nn.layers.sequence_layers import Convolution, Recurrent, WindowRecurrent
from pyasr.nn.networks.layered import LayeredNetwork, read_network

_WHOLE = 500  # frames of an utterance
RECURRENT, WINDOWS, CONVOLUTIONS, LAYERS = "recurrent", "windows", "convolutions", "time delays"


def size_of_network(
    path: Path, input_dim: int, num_outputs: int, chunk: int
) -> tuple[int, float, str, int, int]:
    """(parameters, products per frame, kind, matrices, recurrent steps per chunk) of a network trained on
    chunks of `chunk` frames.

    A chunk of 0 stands for whole utterances. A product is a multiplication with its addition. The products of
    context frames are included, so short chunks cost more. Raises UserError for an invalid file, and for
    layers that do not match the input.
    """
    with torch.device("meta"):
        network = LayeredNetwork(read_network(path), input_dim, num_outputs, chunk)
    sizes = [(parameter.numel(), parameter.dim()) for parameter in network.parameters()]
    num_matrices = sum(dim > 1 for _, dim in sizes)
    return (
        sum(size for size, _ in sizes),
        products_of(network, chunk),
        kind_of(network),
        num_matrices,
        recurrent_steps(network, chunk),
    )


def kind_of(network: LayeredNetwork) -> str:
    """The kind of layer that takes most of the time."""
    for kind, layer in ((WINDOWS, WindowRecurrent), (RECURRENT, Recurrent), (CONVOLUTIONS, Convolution)):
        if any(isinstance(one, layer) for one in network.layers):
            return kind
    return LAYERS


def recurrent_steps(network: LayeredNetwork, chunk: int) -> int:
    """Sequential steps of LSTMs over frames, or positions of a window, over all layers and directions."""
    frames = network.left + (chunk or _WHOLE) + network.right
    windows = sum(
        len(layer.directions) * (layer.left + 1 + layer.right)
        for layer in network.layers
        if isinstance(layer, WindowRecurrent)
    )
    return windows + frames * sum(
        len(layer.directions) for layer in network.layers if isinstance(layer, Recurrent)
    )


def products_of(network: LayeredNetwork, chunk: int) -> float:
    """Products per frame, over a chunk with its context."""
    frames = chunk or _WHOLE
    present, total = network.left + frames + network.right, 0.0
    for layer in network.layers:
        after = (present - layer.left - layer.right - 1) // layer.stride + 1
        total += _products_of_layer(layer, present, after)
        present = after
    return (total + _weights(network.output) * present) / frames


def _products_of_layer(layer: nn.Module, before: int, after: int) -> float:
    """Products of a layer with `before` input and `after` output frames. An LSTM over windows shares the
    products with frames."""
    if isinstance(layer, WindowRecurrent):
        inputs = sum(_weights(lstm.input) for lstm in layer.directions)
        return inputs * before + (_weights(layer) - inputs) * (layer.left + 1 + layer.right) * after
    if isinstance(layer, Convolution):
        return _weights(layer) * _bands(layer) * after
    return _weights(layer) * after


def _bands(layer: Convolution) -> int:
    """Number of positions of a filter along the frequencies."""
    return layer.dim_in // layer.channels - layer.convolution.kernel_size[1] + 1


def _weights(module: nn.Module) -> int:
    """Number of elements of a module's matrices."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)
