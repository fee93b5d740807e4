"""The LSTM of `pyasr.nn.layers.lstm` as ONNX operators.

ONNX's own LSTM supports neither projections nor clipped cells nor delays, so the loop over time is a Scan,
whose body contains the equations (1) to (4) of one frame.
"""

from __future__ import annotations

from pyasr.export.onnx_graph import OnnxGraph
from pyasr.export.onnx_ops import affine, missing, reshape, reversed_frames, size, sizes_of
from pyasr.export.values import array
from pyasr.nn.layers.lstm import Lstm


def add_lstm(lstm: Lstm, graph: OnnxGraph, x: str) -> str:
    """Outputs (T, N, output_dim) of one direction for frames (T, N, input_dim)."""
    num_frames, num_sequences = size(graph, x, 0), size(graph, x, 1)
    rows = graph.op("Mul", num_sequences, graph.constant([lstm.delay]))
    x = reversed_frames(graph, x) if lstm.backward else x
    x = _filled_up(graph, x, num_frames, lstm.delay)
    a = reshape(graph, affine(graph, lstm.input, x), -1, rows, 0)
    states = [
        graph.op("Expand", graph.constant(0.0), sizes_of(graph, rows, dim))
        for dim in (lstm.recurrent_dim, lstm.cell_dim)
    ]
    y = graph.op_with(3, "Scan", *states, a, body=_frame(lstm, graph), num_scan_inputs=1)[2]
    y = reshape(graph, y, -1, num_sequences, 0)
    if lstm.delay > 1:
        y = graph.op("Slice", y, graph.constant([0]), num_frames)
    return reversed_frames(graph, y) if lstm.backward else y


def _filled_up(graph: OnnxGraph, x: str, num_frames: str, delay: int) -> str:
    """Frames padded with zeros at the end, to a multiple of `delay`."""
    if delay == 1:
        return x
    return graph.op("Pad", x, sizes_of(graph, 0, 0, 0, missing(graph, num_frames, delay), 0, 0))


def _frame(lstm: Lstm, outer: OnnxGraph) -> OnnxGraph:
    """Body of the loop: from the previous r and c and W_x x_t + b to r, c and y_t; one row per sequence."""
    graph, cells = outer.body("frame"), lstm.cell_dim
    r = graph.input("r_before", ("rows", lstm.recurrent_dim))
    before = graph.input("c_before", ("rows", cells))
    a = graph.op("Add", graph.input("a", ("rows", 4 * cells)), affine(graph, lstm.recurrent, r))
    i, f, g, o = graph.op_with(4, "Split", a, axis=1, num_outputs=4)
    i, f = (_gate(graph, gate, before, lstm, number) for number, gate in enumerate((i, f)))
    c = graph.op("Add", graph.op("Mul", f, before), graph.op("Mul", i, graph.op("Tanh", g)))
    if lstm.cell_clip:
        c = graph.op("Clip", c, graph.constant(-lstm.cell_clip), graph.constant(lstm.cell_clip))
    y = graph.op("Mul", _gate(graph, o, c, lstm, 2), graph.op("Tanh", c))
    if lstm.projection is not None:
        y = affine(graph, lstm.projection, y)
    fed_back = graph.op("Slice", y, *(graph.constant([value]) for value in (0, lstm.recurrent_dim, 1)))
    graph.output(fed_back, "r", ("rows", lstm.recurrent_dim))
    graph.output(c, "c", ("rows", cells))
    graph.output(y, "y", ("rows", lstm.output_dim))
    return graph


def _gate(graph: OnnxGraph, a: str, cells: str, lstm: Lstm, number: int) -> str:
    """The sigmoid of a gate, which may have peepholes; gates are numbered i, f, o."""
    if lstm.peepholes is not None:
        a = graph.op("Add", a, graph.op("Mul", cells, graph.constant(array(lstm.peepholes[number]))))
    return graph.op("Sigmoid", a)
