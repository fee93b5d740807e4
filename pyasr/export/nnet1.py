"""Feed-forward networks in Kaldi's nnet1 format: `final.nnet`, `final.feature_transform` and
`ali_train_pdf.counts`.

A file of nnet1 is a chain of components. Each begins with its name and its dimensions (output, input),
followed by its parameters:

    <Nnet> <AffineTransform> 1024 440 [ weights ] [ biases ] <Sigmoid> 1024 1024 ...
    <Softmax> 1500 1500 </Nnet>

`nnet-forward --feature-transform=final.feature_transform --class-frame-counts=ali_train_pdf.counts
--no-softmax=true final.nnet` gives logits - log priors, which differ from our scores by a constant per frame.
ReLU is written as ParametricRelu of newer Kaldi versions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.export.network_parts import (
    Affine,
    FrameSplice,
    Norms,
    Part,
    Scale,
    Shift,
    Unit,
    affine_part,
    input_parts,
    network_parts,
)
from pyasr.export.source import feature_dim
from pyasr.feats.inputs import InputOptions
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.nn.networks.acoustic import AcousticModel

NETWORK_FILE, TRANSFORM_FILE, COUNTS_FILE = "final.nnet", "final.feature_transform", "ali_train_pdf.counts"
_NUM_FRAMES = 1e6  # sum of the counts
_UNITS = {"sigmoid": "<Sigmoid>", "tanh": "<Tanh>", "log-softmax": "<Softmax>"}


def write_nnet1(model: AcousticModel, options: InputOptions, out: Path) -> None:
    """Write a model's three files to `out`. Raises UserError for a network without an equivalent in nnet1."""
    parts = [*network_parts(model.network), Unit("log-softmax", model.num_pdfs)]
    _check(parts)
    if model.subsampling != 1:
        raise UserError(
            f"the network has one output per {model.subsampling} frames, which nnet1 does not support; use "
            "--form nnet3"
        )
    _write_chain(
        out / TRANSFORM_FILE, input_parts(model, options), feature_dim(model, options) * (options.deltas + 1)
    )
    _write_chain(out / NETWORK_FILE, parts, affine_part(parts[0]).weight.shape[1])
    with KaldiWriter(out / COUNTS_FILE, binary=False) as writer:
        writer.vector(np.exp(model.log_priors.double().numpy()) * _NUM_FRAMES)


def _check(parts: list[Part]) -> None:
    unknown = {
        FrameSplice: "splices frames",
        Norms: "has p-norm units",
        Scale: "is scaled",
        Shift: "is shifted",
    }
    for part in parts:
        if type(part) in unknown:
            raise UserError(
                f"a layer of the network {unknown[type(part)]}, which nnet1 does not support; use --form "
                "nnet3"
            )
        if isinstance(part, Unit) and part.kind == "normalize":
            raise UserError(
                "units of the network are normalised to root mean square 1, which nnet1 does not support; "
                "use --form nnet3"
            )


def _write_chain(path: Path, parts: list[Part], dim: int) -> None:
    with KaldiWriter(path, binary=False) as writer:
        writer.token("<Nnet>")
        for part in parts:
            writer.newline()
            dim = _write_component(writer, part, dim)
        writer.newline()
        writer.token("</Nnet>")
        writer.newline()


def _write_component(writer: KaldiWriter, part: Part, dim: int) -> int:
    """Write a component with `dim` inputs. Returns the number of its outputs."""
    match part:
        case FrameSplice(offsets):
            _head(writer, "<Splice>", dim * len(offsets), dim)
            writer.int_vector(offsets)
            return dim * len(offsets)
        case Shift(values) | Scale(values):
            _head(writer, "<AddShift>" if isinstance(part, Shift) else "<Rescale>", dim, dim)
            writer.vector(values)
        case Affine(weight, bias):
            _head(writer, "<AffineTransform>", *weight.shape)
            writer.matrix(weight)
            writer.vector(bias)
            return len(bias)
        case Unit("relu"):
            _head(writer, "<ParametricRelu>", dim, dim)
            writer.vector(np.ones(dim, np.float32))
            writer.vector(np.zeros(dim, np.float32))
        case Unit(kind):
            _head(writer, _UNITS[kind], dim, dim)
    return dim


def _head(writer: KaldiWriter, name: str, dim_out: int, dim_in: int) -> None:
    writer.token(name)
    writer.int32(dim_out)
    writer.int32(dim_in)
