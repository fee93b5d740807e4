"""Layers of `pyasr.nn` as ONNX operators: `add_layer(layer, graph, x)` returns the output for frames x.

Frames are (T, N, dim), N sequences of T frames; both sizes are known only at run time.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from torch import nn

from pyasr.base.errors import UserError
from pyasr.export.onnx_graph import OnnxGraph
from pyasr.export.onnx_lstm import add_lstm
from pyasr.export.onnx_ops import ALL, affine, reshape, shifted, side_by_side, size, slice_frames
from pyasr.export.values import array
from pyasr.nn.dropout import Dropout
from pyasr.nn.layers.nnet2_layers import FLOOR, MAX_LOG_RATIO, Normalize, PNorm, SumGroup
from pyasr.nn.layers.sequence_layers import Convolution, Crop, Delay, Recurrent, Splice, WindowRecurrent
from pyasr.nn.layers.tdnnf import FactorisedTdnn
from pyasr.nn.networks.kinds.layer_parts import Stack


@singledispatch
def add_layer(layer: nn.Module, graph: OnnxGraph, x: str) -> str:
    """Add the nodes of a layer to `x`. Raises UserError for an unsupported kind of layer."""
    raise UserError(
        f"layers of type {type(layer).__name__} cannot be exported to ONNX yet; export a network without them"
    )


@add_layer.register
def _(layer: nn.Sequential, graph: OnnxGraph, x: str) -> str:
    for part in layer:
        x = add_layer(part, graph, x)
    return x


@add_layer.register
def _(layer: nn.Linear, graph: OnnxGraph, x: str) -> str:
    return affine(graph, layer, x)


@add_layer.register
def _(layer: nn.ReLU, graph: OnnxGraph, x: str) -> str:
    return graph.op("Relu", x)


@add_layer.register
def _(layer: nn.Sigmoid, graph: OnnxGraph, x: str) -> str:
    return graph.op("Sigmoid", x)


@add_layer.register
def _(layer: nn.Tanh, graph: OnnxGraph, x: str) -> str:
    return graph.op("Tanh", x)


@add_layer.register
def _(layer: Dropout, graph: OnnxGraph, x: str) -> str:
    return x


@add_layer.register
def _(layer: PNorm, graph: OnnxGraph, x: str) -> str:
    return graph.op(
        "ReduceL2", reshape(graph, x, 0, 0, layer.group_size, -1), graph.constant([2]), keepdims=0
    )


@add_layer.register
def _(layer: Normalize, graph: OnnxGraph, x: str) -> str:
    power = graph.op("ReduceMean", graph.op("Mul", x, x), graph.constant([2]))
    return graph.op("Div", x, graph.op("Sqrt", graph.op("Max", power, graph.constant(FLOOR))))


@add_layer.register
def _(layer: nn.LayerNorm, graph: OnnxGraph, x: str) -> str:
    gains = graph.constant(np.ones(layer.normalized_shape))
    return graph.op("LayerNormalization", x, gains, axis=2, epsilon=layer.eps)


@add_layer.register
def _(layer: SumGroup, graph: OnnxGraph, z: str) -> str:
    """ScatterND adds along the first axis, so outputs are first here: (outputs, T, N)."""
    extras = array(layer.extras)
    z = graph.op("Transpose", z, perm=[2, 0, 1])
    first, copies = slice_frames(graph, z, 0, -len(extras)), slice_frames(graph, z, -len(extras))
    ratios = graph.op("Sub", copies, graph.op("Gather", first, graph.constant(extras), axis=0))
    ratios = graph.op("Exp", graph.op("Min", ratios, graph.constant(MAX_LOG_RATIO)))
    ones = graph.op("Expand", graph.constant(1.0), graph.op("Shape", first))
    sums = graph.op("ScatterND", ones, graph.constant(extras[:, None]), ratios, reduction="add")
    return graph.op("Transpose", graph.op("Add", first, graph.op("Log", sums)), perm=[1, 2, 0])


@add_layer.register
def _(layer: Stack, graph: OnnxGraph, x: str) -> str:
    return add_layer(layer.others, graph, add_layer(layer.first, graph, x))


@add_layer.register
def _(layer: Splice, graph: OnnxGraph, x: str) -> str:
    return side_by_side(graph, shifted(graph, x, layer.offsets, layer.stride))


@add_layer.register
def _(layer: Delay, graph: OnnxGraph, x: str) -> str:
    return slice_frames(graph, x, layer.right)


@add_layer.register
def _(layer: Crop, graph: OnnxGraph, x: str) -> str:
    return slice_frames(graph, x, layer.left, -layer.right or ALL)


@add_layer.register
def _(layer: FactorisedTdnn, graph: OnnxGraph, x: str) -> str:
    x = slice_frames(graph, x, 0, step=layer.stride)
    y = x
    for part in (layer.before, layer.linear, layer.after, layer.affine, nn.ReLU(), layer.norm):
        y = add_layer(part, graph, y)
    around = slice_frames(graph, x, layer.left, -layer.right or ALL)
    return (
        graph.op("Add", y, graph.op("Mul", around, graph.constant(layer.bypass_scale)))
        if layer.bypass_scale
        else y
    )


@add_layer.register
def _(layer: Convolution, graph: OnnxGraph, x: str) -> str:
    images = graph.op("Transpose", reshape(graph, x, 0, 0, layer.channels, -1), perm=[1, 2, 0, 3])
    parameters = [
        graph.constant(array(value)) for value in (layer.convolution.weight, layer.convolution.bias)
    ]
    y = graph.op("Relu", graph.op("Conv", images, *parameters))
    if max(layer.pool, layer.step) > 1:
        y = graph.op("MaxPool", y, kernel_shape=[1, layer.pool], strides=[1, layer.step])
    return reshape(graph, graph.op("Transpose", y, perm=[2, 0, 1, 3]), 0, 0, -1)


@add_layer.register
def _(layer: Recurrent, graph: OnnxGraph, x: str) -> str:
    return side_by_side(graph, [add_lstm(lstm, graph, x) for lstm in layer.directions])


@add_layer.register
def _(layer: WindowRecurrent, graph: OnnxGraph, x: str) -> str:
    """All windows go through the loop as a batch: (window, T' N, dim)."""
    of_window = shifted(graph, x, list(range(-layer.left, layer.right + 1)))
    first = graph.constant([0])
    windows = graph.op("Concat", *(graph.op("Unsqueeze", frames, first) for frames in of_window), axis=0)
    frames = reshape(graph, windows, len(of_window), -1, layer.directions[0].input.in_features)
    ends = [
        graph.op("Gather", add_lstm(lstm, graph, frames), graph.constant(0 if lstm.backward else -1), axis=0)
        for lstm in layer.directions
    ]
    return reshape(graph, graph.op("Concat", *ends, axis=1), -1, size(graph, x, 1), layer.dim_out)
