"""Division of utterances into chunks of the training length, and concatenation of their outputs, as in
`LayeredNetwork.log_posteriors`.

Times are computed in the graph, because the number of frames T is known only at run time. With C frames per
chunk, S frames per output:

    chunk k begins at frame b_k = min(k C, ceil(max(T - C, 0) / S) S),          k = 0 .. ceil(T / C) - 1
    output j is output j - b_k / S of chunk k = floor(j S / C),                 j = 0 .. ceil(T / S) - 1
"""

from __future__ import annotations

from pyasr.export.onnx_graph import OnnxGraph
from pyasr.export.onnx_ops import reshape, size
from pyasr.nn.networks.layered import LayeredNetwork


class Chunks:
    """The chunks of the utterances `x`, frames (T, N, dim), for a network."""

    def __init__(self, network: LayeredNetwork, graph: OnnxGraph, x: str):
        self.network, self.graph, self.x = network, graph, x
        self.num_frames = size(graph, x, 0)
        self.begins = self._begins()

    def frames(self) -> str:
        """Chunks with context as a batch: (left + C + right, num_chunks N, dim)."""
        network, graph = self.network, self.graph
        in_chunk = graph.op(
            "Unsqueeze",
            self._range(-network.left, self._number(network.chunk + network.right)),
            self._number(1),
        )
        last = graph.op("Sub", self.num_frames, self._number(1))
        times = graph.op(
            "Min", graph.op("Max", graph.op("Add", in_chunk, self.begins), self._number(0)), last
        )
        frames = graph.op("Gather", self.x, times, axis=0)  # (left + C + right, num_chunks, N, dim)
        return reshape(graph, frames, network.left + network.chunk + network.right, -1, network.input_dim)

    def joined(self, z: str) -> str:
        """Outputs (ceil(T / S), N, num_pdfs) of the utterances from those of the chunks, (C / S, num_chunks
        N, num_pdfs)."""
        graph, num_in_chunk = self.graph, self.network.chunk // self.network.subsampling
        outputs = self._range(0, self._ratio(self.num_frames, self.network.subsampling))
        chunk = graph.op("Div", outputs, self._number(num_in_chunk))
        begin = graph.op(
            "Div", graph.op("Gather", self.begins, chunk, axis=0), self._number(self.network.subsampling)
        )
        place = graph.op("Mul", graph.op("Sub", outputs, begin), size(graph, self.begins, 0))
        # (C / S num_chunks, N, num_pdfs)
        by_chunk = reshape(graph, z, -1, size(graph, self.x, 1), self.network.num_pdfs)
        return graph.op("Gather", by_chunk, graph.op("Add", place, chunk), axis=0)

    def _begins(self) -> str:
        chunk, stride = self.network.chunk, self.network.subsampling
        beyond = self.graph.op(
            "Max", self.graph.op("Sub", self.num_frames, self._number(chunk)), self._number(0)
        )
        last = self.graph.op("Mul", self._ratio(beyond, stride), self._number(stride))
        regular = self.graph.op(
            "Mul", self._range(0, self._ratio(self.num_frames, chunk)), self._number(chunk)
        )
        return self.graph.op("Min", regular, last)

    def _ratio(self, value: str, divisor: int) -> str:
        """Quotient, rounded up."""
        return self.graph.op(
            "Div", self.graph.op("Add", value, self._number(divisor - 1)), self._number(divisor)
        )

    def _range(self, begin: int, end: str) -> str:
        scalars = (
            self.graph.constant(begin),
            self.graph.op("Squeeze", end, self._number(0)),
            self.graph.constant(1),
        )
        return self.graph.op("Range", *scalars)

    def _number(self, value: int) -> str:
        return self.graph.constant([value])
