"""Graphs of ONNX operators, built node by node.

    graph = OnnxGraph("network")
    x = graph.input("features", ("batch", "frames", 40))
    y = graph.op("Add", graph.op("MatMul", x, graph.constant(weight)), graph.constant(bias))
    graph.output(y, "scores", ("batch", "frames", 2000))
    content = model_file(graph, "an affine layer", {"left_context": "0"})

Values are referred to by name. Operators are those of opset 18 (onnxruntime 1.14 and later).
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto, helper, numpy_helper

from pyasr.base.errors import UserError

_OPSET, _IR_VERSION = 18, 8
_MAX_BYTES = 2**31 - 2**24  # of constants; a file has at most 2^31, and the operators take less than 2^24

Shape = tuple["int | str", ...]  # a number for a fixed size, a name for one that is known at run time


class OnnxGraph:
    """Operators in the order of execution, with their constants.

    outer           graph of which this one is the body of a loop: names are unique over both, and the
                    constants are stored there
    content         the graph so far
    constant_bytes  size of its constants
    """

    def __init__(self, name: str, outer: OnnxGraph | None = None):
        self.content, self._outer = GraphProto(name=name), outer
        self.constant_bytes = 0
        self._num_names = 0

    def input(self, name: str, shape: Shape) -> str:
        """Add a float32 input."""
        self.content.input.append(_floats(name, shape))
        return name

    def output(self, value: str, name: str, shape: Shape) -> None:
        """Declare `value` as an output with a name."""
        self.content.node.append(helper.make_node("Identity", [value], [name], name))
        self.content.output.append(_floats(name, shape))

    def constant(self, array) -> str:
        """Add a constant: floating-point values as float32, whole numbers as int64."""
        if self._outer is not None:
            return self._outer.constant(array)
        array = np.asarray(array)
        array = array.astype(np.int64 if np.issubdtype(array.dtype, np.integer) else np.float32)
        name = self._new_name("constant")
        self.constant_bytes += array.nbytes
        self.content.initializer.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, /, *inputs: str, **attributes) -> str:
        """Add a node with one output. Returns the name of the output."""
        return self.op_with(1, kind, *inputs, **attributes)[0]

    def op_with(self, num_outputs: int, kind: str, /, *inputs: str, **attributes) -> list[str]:
        """Add a node with several outputs; an attribute is an int, a float, a str, a list of ints, or the
        OnnxGraph of a loop body."""
        outputs = [self._new_name(kind) for _ in range(num_outputs)]
        settings = {
            name: value.content if isinstance(value, OnnxGraph) else value
            for name, value in attributes.items()
        }
        self.content.node.append(helper.make_node(kind, inputs, outputs, outputs[0], **settings))
        return outputs

    def body(self, name: str) -> OnnxGraph:
        """An empty graph for the body of a loop."""
        return OnnxGraph(name, self)

    def _new_name(self, hint: str) -> str:
        if self._outer is not None:
            return self._outer._new_name(hint)
        self._num_names += 1
        return f"{hint.lower()}_{self._num_names}"


def model_file(graph: OnnxGraph, doc: str, metadata: dict[str, str]) -> bytes:
    """Content of an ONNX file of a graph, with a description and metadata. Raises UserError if it would be
    too large."""
    if graph.constant_bytes > _MAX_BYTES:
        raise UserError(
            f"the model has {graph.constant_bytes / 2**30:.1f} GB, but an ONNX file has at most 2; export a "
            "smaller one"
        )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(
        graph.content, producer_name="pyasr", doc_string=doc, ir_version=_IR_VERSION, opset_imports=[opset]
    )
    helper.set_model_props(model, metadata)
    return model.SerializeToString()


def _floats(name: str, shape: Shape) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
