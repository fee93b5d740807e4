"""What several kinds of layers do to frames (T, N, dim), as ONNX operators."""

from __future__ import annotations

import numpy as np
from torch import nn

from pyasr.export.onnx_graph import Graph
from pyasr.export.values import array

ALL = int(np.iinfo(np.int64).max)  # the end of a slice that goes on to the last frame


def affine(graph: Graph, layer: nn.Linear, x: str) -> str:
    """The layer's map of the last axis."""
    y = graph.op("MatMul", x, graph.constant(array(layer.weight).T))
    return y if layer.bias is None else graph.op("Add", y, graph.constant(array(layer.bias)))


def slice_frames(graph: Graph, x: str, begin: int, end: int = ALL, step: int = 1) -> str:
    """x[begin:end:step]; negative numbers are counted from the last frame."""
    return graph.op("Slice", x, *(graph.constant([value]) for value in (begin, end, 0, step)))


def reversed_frames(graph: Graph, x: str) -> str:
    """The last frame first."""
    return slice_frames(graph, x, -1, -ALL, -1)


def shifted(graph: Graph, x: str, offsets: list[int], stride: int = 1) -> list[str]:
    """x[t + o] for each offset o, of those t that have them all, from the first on every `stride`-th."""
    left, right = max(0, -min(offsets)), max(0, max(offsets))
    return [slice_frames(graph, x, left + offset, offset - right or ALL, stride) for offset in offsets]


def side_by_side(graph: Graph, parts: list[str]) -> str:
    """Frames made of the frames of all parts."""
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=2)


def reshape(graph: Graph, x: str, *sizes: int | str) -> str:
    """Sizes are numbers, 0 for that of x and -1 for what is left, or values (1,) of the graph."""
    return graph.op("Reshape", x, sizes_of(graph, *sizes))


def sizes_of(graph: Graph, *sizes: int | str) -> str:
    """Numbers and values (1,) of the graph in one value."""
    if all(isinstance(size, int) for size in sizes):
        return graph.constant(sizes)
    return graph.op("Concat", *(graph.constant([size]) if isinstance(size, int) else size for size in sizes), axis=0)


def repeat_ends(graph: Graph, x: str, left: int, right: int | str) -> str:
    """The first frame so often before, the last so often after all; `right` may be a value (1,) of the graph."""
    return graph.op("Pad", x, sizes_of(graph, left, 0, 0, right, 0, 0), mode="edge") if left or right else x


def size(graph: Graph, x: str, axis: int) -> str:
    """The size of an axis as a value (1,) of the graph."""
    return graph.op("Shape", x, start=axis, end=axis + 1)


def missing(graph: Graph, number: str, divisor: int) -> str:
    """What a value (1,) of the graph lacks to a multiple of `divisor`."""
    return graph.op("Mod", graph.op("Neg", number), graph.constant([divisor]))
