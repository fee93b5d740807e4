"""Operations of several kinds of layers on frames (T, N, dim), as ONNX operators."""

from __future__ import annotations

import numpy as np
from torch import nn

from pyasr.export.onnx_graph import OnnxGraph
from pyasr.export.values import array

ALL = int(np.iinfo(np.int64).max)  # end of a slice that includes the last frame


def affine(graph: OnnxGraph, layer: nn.Linear, x: str) -> str:
    """The affine map of the layer, along the last axis."""
    y = graph.op("MatMul", x, graph.constant(array(layer.weight).T))
    return y if layer.bias is None else graph.op("Add", y, graph.constant(array(layer.bias)))


def slice_frames(graph: OnnxGraph, x: str, begin: int, end: int = ALL, step: int = 1) -> str:
    """x[begin:end:step]; negative numbers count from the last frame."""
    return graph.op("Slice", x, *(graph.constant([value]) for value in (begin, end, 0, step)))


def reversed_frames(graph: OnnxGraph, x: str) -> str:
    """Frames in reverse order."""
    return slice_frames(graph, x, -1, -ALL, -1)


def shifted(graph: OnnxGraph, x: str, offsets: list[int], stride: int = 1) -> list[str]:
    """x[t + o] for each offset o, for every `stride`-th of the t for which all of them exist."""
    left, right = max(0, -min(offsets)), max(0, max(offsets))
    return [slice_frames(graph, x, left + offset, offset - right or ALL, stride) for offset in offsets]


def side_by_side(graph: OnnxGraph, parts: list[str]) -> str:
    """Concatenation of the frames of all parts."""
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=2)


def reshape(graph: OnnxGraph, x: str, *sizes: int | str) -> str:
    """x with another shape; sizes are numbers (0: that of x, -1: inferred) or values (1,) of the graph."""
    return graph.op("Reshape", x, sizes_of(graph, *sizes))


def sizes_of(graph: OnnxGraph, *sizes: int | str) -> str:
    """Numbers and values (1,) of the graph as one value."""
    if all(isinstance(size, int) for size in sizes):
        return graph.constant(sizes)
    return graph.op(
        "Concat", *(graph.constant([size]) if isinstance(size, int) else size for size in sizes), axis=0
    )


def repeat_ends(graph: OnnxGraph, x: str, left: int, right: int | str) -> str:
    """x with the first frame repeated `left` times and the last `right` times; `right` may be a value (1,) of
    the graph."""
    return graph.op("Pad", x, sizes_of(graph, left, 0, 0, right, 0, 0), mode="edge") if left or right else x


def size(graph: OnnxGraph, x: str, axis: int) -> str:
    """The size of an axis as a value (1,) of the graph."""
    return graph.op("Shape", x, start=axis, end=axis + 1)


def missing(graph: OnnxGraph, number: str, divisor: int) -> str:
    """Difference of a value (1,) of the graph to the next multiple of `divisor`."""
    return graph.op("Mod", graph.op("Neg", number), graph.constant([divisor]))
