"""Feed-forward networks and TDNNs in Kaldi's nnet3 format: `final.mdl`, a transition model and the network
with its priors.

The file is text (`nnet3-am-copy` converts it to binary): lines that connect components, then components,
contexts and priors.

    <Nnet3>
    input-node name=input dim=40
    component-node name=affine1 component=affine1 input=Append(Offset(input, -1), input, Offset(input, 1))
    output-node name=output input=logsoftmax1 objective=linear

    <NumComponents> 2 <ComponentName> affine1 <AffineComponent> ... </Nnet3>
    <LeftContext> 1 <RightContext> 1 <Priors> [ ... ]

Layers with subsampling need no special treatment: nnet3 computes the frames that a decoder requests by its
--frame-subsampling-factor. The factor on scores of LF-MMI models is not exported, because Kaldi's chain
models have none: they are decoded with --acoustic-scale=1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.export.network_parts import (
    Affine,
    Bypass,
    FrameSplice,
    Norms,
    Part,
    Scale,
    Shift,
    Unit,
    delta_parts,
    dim_after,
    input_parts,
    network_parts,
)
from pyasr.export.source import feature_dim
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.nn.networks.acoustic import AcousticModel

_UNITS = {"relu": "RectifiedLinear", "sigmoid": "Sigmoid", "tanh": "Tanh", "log-softmax": "LogSoftmax"}
_LEARNING_RATE = 0.001  # for further training by Kaldi


@dataclass(frozen=True)
class Node:
    """A component, and the descriptor of its input. The component of a bypass is an identity: its descriptor
    does the sum."""

    name: str
    descriptor: str
    part: Part


class Nnet3Nodes:
    """The nodes of a chain of parts, one per part except splicing, which descriptors do.

    left, right  frames of context
    """

    def __init__(self, parts: list[Part]):
        self.nodes: list[Node] = []
        self._begins, self._ends = 0, 0
        self._last, self._offsets = "input", [0]
        self._add(parts)
        self.left, self.right = max(0, -self._begins), max(0, self._ends)

    def _add(self, parts: list[Part]) -> None:
        for part in parts:
            before = _descriptor(self._last, self._offsets)
            if isinstance(part, FrameSplice):
                self._offsets = [frame + offset for offset in part.offsets for frame in self._offsets]
                self._begins, self._ends = self._begins + min(part.offsets), self._ends + max(part.offsets)
            elif isinstance(part, Bypass):
                self._add(part.parts)
                self._append(part, f"Sum(Scale({part.scale}, {before}), {self._last})")
            else:
                self._append(part, before)

    def _append(self, part: Part, descriptor: str) -> None:
        name = _name(part)
        self._last, self._offsets = f"{name}{1 + sum(_name(node.part) == name for node in self.nodes)}", [0]
        self.nodes.append(Node(self._last, descriptor, part))


def _descriptor(name: str, offsets: list[int]) -> str:
    """Spliced frames of a node."""
    frames = [f"Offset({name}, {offset})" if offset else name for offset in offsets]
    return frames[0] if len(frames) == 1 else f"Append({', '.join(frames)})"


def write_nnet3(
    model: AcousticModel, options: InputOptions, transitions: TransitionModel, path: Path
) -> None:
    """Write the file `final.mdl`. Raises UserError for a network without equivalent in these components."""
    dim = feature_dim(model, options)
    parts = [
        *delta_parts(options.deltas, dim),
        *input_parts(model, options),
        *network_parts(model.network),
        Unit("log-softmax", model.num_pdfs),
    ]
    chain = Nnet3Nodes(parts)
    with KaldiWriter(path, binary=False) as writer:
        transitions.write(writer)
        writer.token("<Nnet3>")
        _write_lines(writer, chain.nodes, dim)
        _write_components(writer, chain.nodes)
        writer.token("<LeftContext>")
        writer.int32(chain.left)
        writer.token("<RightContext>")
        writer.int32(chain.right)
        writer.token("<Priors>")
        writer.vector(_priors(model))


def _name(part: Part) -> str:
    return part.kind.replace("-", "") if isinstance(part, Unit) else type(part).__name__.lower()


def _write_lines(writer: KaldiWriter, nodes: list[Node], dim: int) -> None:
    """Write the lines of the network, and the empty line that ends them."""
    between = [
        f"component-node name={node.name} component={node.name} input={node.descriptor}" for node in nodes
    ]
    for line in [
        "",
        f"input-node name=input dim={dim}",
        *between,
        f"output-node name=output input={nodes[-1].name} objective=linear",
        "",
    ]:
        for word in line.split():
            writer.token(word)
        writer.newline()


def _write_components(writer: KaldiWriter, nodes: list[Node]) -> None:
    writer.token("<NumComponents>")
    writer.int32(len(nodes))
    for node in nodes:
        writer.newline()
        writer.token("<ComponentName>")
        writer.token(node.name)
        _write_component(writer, node.part)
    writer.newline()
    writer.token("</Nnet3>")


def _write_component(writer: KaldiWriter, part: Part) -> None:
    match part:
        case Shift(values):
            _write_fields(writer, "FixedBias", {"Bias": values})
        case Scale(values):
            _write_fields(writer, "FixedScale", {"Scales": values})
        case Affine(weight, bias, fixed):
            rate = {} if fixed else {"LearningRate": _LEARNING_RATE}
            _write_fields(
                writer,
                "FixedAffine" if fixed else "Affine",
                {**rate, "LinearParams": weight, "BiasParams": bias},
            )
        case Bypass():
            _write_fields(writer, "NoOp", {"Dim": dim_after(part.parts[-1]), **_no_statistics()})
        case Norms(dim, size):
            _write_fields(writer, "Pnorm", {"InputDim": dim * size, "OutputDim": dim})
        case Unit("normalize", dim):
            _write_fields(writer, "Normalize", {"Dim": dim, "TargetRms": 1.0, **_no_statistics()})
        case Unit(kind, dim):
            _write_fields(writer, _UNITS[kind], {"Dim": dim, **_no_statistics()})


def _no_statistics() -> dict:
    """Empty training statistics of units, in the form that every nnet3 reads."""
    return {"ValueAvg": np.zeros(0, np.float32), "DerivAvg": np.zeros(0, np.float32), "Count": 0.0}


def _write_fields(writer: KaldiWriter, kind: str, fields: dict) -> None:
    """Write a component with the values of its fields: int, float, vector, matrix."""
    writer.token(f"<{kind}Component>")
    for name, value in fields.items():
        writer.token(f"<{name}>")
        if isinstance(value, int):
            writer.int32(value)
        elif isinstance(value, float):
            writer.float32(value)
        else:
            (writer.matrix if value.ndim == 2 else writer.vector)(value)
    writer.token(f"</{kind}Component>")


def _priors(model: AcousticModel) -> np.ndarray:
    """Priors by which posteriors are divided; empty if they have no effect."""
    log_priors = model.log_priors.numpy()
    return np.exp(log_priors) if log_priors.any() else np.zeros(0, np.float32)
