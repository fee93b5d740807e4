"""Graphs of ONNX operators, built node by node and written as an ONNX file without the onnx library.

    graph = OnnxGraph("network")
    x = graph.input("features", ("batch", "frames", 40))
    y = graph.op("Add", graph.op("MatMul", x, graph.constant(weight)), graph.constant(bias))
    graph.output(y, "scores", ("batch", "frames", 2000))
    content = model_file(graph, "an affine layer", {"left_context": "0"})

Values are referred to by name. Field numbers are those of onnx.proto; operators are those of opset 18
(onnxruntime 1.14 and later).
"""

from __future__ import annotations

import numpy as np

from pyasr.base import protobuf
from pyasr.base.errors import UserError

_OPSET, _IR_VERSION = 18, 8
_ELEMENT_TYPES = {"float32": 1, "int64": 7}
_FLOAT, _INT, _STRING, _GRAPH, _INTS = 1, 2, 3, 5, 7  # types of attributes
_GREATEST_SIZE = 2**31 - 1  # bytes; limit of protocol buffers

Shape = tuple["int | str", ...]  # a number for a fixed size, a name for one that is known at run time


class OnnxGraph:
    """Operators in the order of execution, with their constants.

    outer  graph of which this one is the body of a loop: names are unique over both, and the constants are
           stored there
    """

    def __init__(self, name: str, outer: OnnxGraph | None = None):
        self.name, self._outer = name, outer
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._num_names = 0

    def input(self, name: str, shape: Shape) -> str:
        """Add a float32 input."""
        self._inputs.append(_value_info(name, shape))
        return name

    def output(self, value: str, name: str, shape: Shape) -> None:
        """Declare `value` as an output with a name."""
        self._nodes.append(_node("Identity", [value], [name], {}))
        self._outputs.append(_value_info(name, shape))

    def constant(self, array) -> str:
        """Add a constant: floating-point values as float32, whole numbers as int64."""
        if self._outer is not None:
            return self._outer.constant(array)
        array = np.asarray(array)
        array = array.astype("<i8" if np.issubdtype(array.dtype, np.integer) else "<f4")
        name = self._new_name("constant")
        self._constants.append(_tensor(name, array))
        return name

    def op(self, kind: str, /, *inputs: str, **attributes) -> str:
        """Add a node with one output. Returns the name of the output."""
        return self.op_with(1, kind, *inputs, **attributes)[0]

    def op_with(self, num_outputs: int, kind: str, /, *inputs: str, **attributes) -> list[str]:
        """Add a node with several outputs; an attribute is an int, a float, a str, a list of ints, or the
        OnnxGraph of a loop body."""
        outputs = [self._new_name(kind) for _ in range(num_outputs)]
        self._nodes.append(_node(kind, inputs, outputs, attributes))
        return outputs

    def body(self, name: str) -> OnnxGraph:
        """An empty graph for the body of a loop."""
        return OnnxGraph(name, self)

    def serialised(self) -> bytes:
        """The message GraphProto."""
        parts = [(1, self._nodes), (5, self._constants), (11, self._inputs), (12, self._outputs)]
        return protobuf.content(2, self.name) + b"".join(
            protobuf.content(number, one) for number, all_of in parts for one in all_of
        )

    def _new_name(self, hint: str) -> str:
        if self._outer is not None:
            return self._outer._new_name(hint)
        self._num_names += 1
        return f"{hint.lower()}_{self._num_names}"


def model_file(graph: OnnxGraph, doc: str, metadata: dict[str, str]) -> bytes:
    """Content of an ONNX file of a graph, with a description and metadata. Raises UserError if it would be
    too large."""
    opset = protobuf.content(1, "") + protobuf.integer(2, _OPSET)
    entries = [
        protobuf.content(14, protobuf.content(1, name) + protobuf.content(2, value))
        for name, value in metadata.items()
    ]
    head = [protobuf.integer(1, _IR_VERSION), protobuf.content(2, "pyasr"), protobuf.content(6, doc)]
    content = b"".join([*head, protobuf.content(7, graph.serialised()), protobuf.content(8, opset), *entries])
    if len(content) > _GREATEST_SIZE:
        raise UserError(
            f"the model has {len(content) / 2**30:.1f} GB, but an ONNX file has at most 2; export a smaller "
            "one"
        )
    return content


def _node(kind: str, inputs, outputs, attributes: dict) -> bytes:
    names = [protobuf.content(1, name) for name in inputs] + [protobuf.content(2, name) for name in outputs]
    settings = [protobuf.content(5, _attribute(name, value)) for name, value in attributes.items()]
    return b"".join([*names, protobuf.content(3, outputs[0]), protobuf.content(4, kind), *settings])


def _attribute(name: str, value) -> bytes:
    head = protobuf.content(1, name)
    if isinstance(value, OnnxGraph):
        return head + protobuf.content(6, value.serialised()) + protobuf.integer(20, _GRAPH)
    if isinstance(value, float):
        return head + protobuf.single(2, value) + protobuf.integer(20, _FLOAT)
    if isinstance(value, str):
        return head + protobuf.content(4, value) + protobuf.integer(20, _STRING)
    if isinstance(value, int):
        return head + protobuf.integer(3, value) + protobuf.integer(20, _INT)
    return head + b"".join(protobuf.integer(8, one) for one in value) + protobuf.integer(20, _INTS)


def _tensor(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(protobuf.integer(1, size) for size in array.shape)
    kind = protobuf.integer(2, _ELEMENT_TYPES[array.dtype.name])
    return dims + kind + protobuf.content(8, name) + protobuf.content(9, array.tobytes())


def _value_info(name: str, shape: Shape) -> bytes:
    sizes = [
        protobuf.content(2, size) if isinstance(size, str) else protobuf.integer(1, size) for size in shape
    ]
    dims = b"".join(protobuf.content(1, size) for size in sizes)
    tensor = protobuf.integer(1, _ELEMENT_TYPES["float32"]) + protobuf.content(2, dims)
    return protobuf.content(1, name) + protobuf.content(2, protobuf.content(1, tensor))
