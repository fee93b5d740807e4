"""A feed-forward network or TDNN as a chain of parts that other toolkits also have; Kaldi's formats are
written from it.

    [FrameSplice(-5..5), Shift(-mean), Scale(1 / std), Affine, Unit("relu"), ..., Affine, Unit("log-softmax")]

Each part maps frames to frames. Times are in frames of features, whatever the subsampling of lower layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from torch import nn

from pyasr.base.errors import UserError
from pyasr.export.values import array
from pyasr.feats.deltas import DELTA_WINDOW, delta_matrix
from pyasr.feats.inputs import InputOptions
from pyasr.nn.dropout import Dropout
from pyasr.nn.layers.nnet2_layers import Normalize, PNorm
from pyasr.nn.layers.sequence_layers import Crop, Delay, SequenceLayer, Splice
from pyasr.nn.layers.tdnnf import FactorisedTdnn
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.nn.networks.kinds.layer_parts import Stack
from pyasr.nn.networks.layered import LayeredNetwork


@dataclass(frozen=True)
class FrameSplice:
    """Frames t + o for each offset o, concatenated."""

    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Shift:
    """x + values."""

    values: np.ndarray


@dataclass(frozen=True)
class Scale:
    """x * values."""

    values: np.ndarray


@dataclass(frozen=True)
class Affine:
    """weight x + bias; `fixed` if it is not trained."""

    weight: np.ndarray
    bias: np.ndarray
    fixed: bool = False


@dataclass(frozen=True)
class Norms:
    """Euclidean norms of groups of `size` consecutive elements; `dim` of them."""

    dim: int
    size: int


@dataclass(frozen=True)
class Unit:
    """relu, sigmoid, tanh, normalize (to root mean square 1) or log-softmax of `dim` elements."""

    kind: str
    dim: int


@dataclass(frozen=True)
class Bypass:
    """Sum of the output of `parts` and of their input times `scale`."""

    scale: float
    parts: list[Part]


Part = FrameSplice | Shift | Scale | Affine | Norms | Unit | Bypass


def input_parts(model: AcousticModel, options: InputOptions) -> list[Part]:
    """Parts from features with derivatives to the normalised input of the network, and untrained layers of
    the network."""
    parts: list[Part] = []
    if options.splice_left or options.splice_right:
        parts.append(FrameSplice(tuple(range(-options.splice_left, options.splice_right + 1))))
    parts += [Shift(-array(model.mean)), Scale(array(model.inverse_std))]
    transform = getattr(model.network, "transform", None)
    return (
        parts
        if transform is None
        else [*parts, Affine(array(transform)[:, :-1], array(transform)[:, -1], fixed=True)]
    )


def delta_parts(order: int, dim: int) -> list[Part]:
    """Derivatives of features of `dim` columns, as an affine map of the frames around each frame."""
    if not order:
        return []
    reach = order * DELTA_WINDOW
    weight = np.kron(delta_matrix(order), np.eye(dim, dtype=np.float32))
    return [
        FrameSplice(tuple(range(-reach, reach + 1))),
        Affine(weight, np.zeros(len(weight), np.float32), fixed=True),
    ]


@singledispatch
def network_parts(network: nn.Module) -> list[Part]:
    """Parts from the normalised input to logits. Raises UserError for networks without such parts."""
    raise UserError(
        f"a network of type {type(network).__name__} cannot be written in Kaldi's format; export it to ONNX"
    )


@network_parts.register
def _(network: FeedForward) -> list[Part]:
    if network.sum_group is not None:
        raise UserError(
            "several outputs of the network belong to one pdf (--mix-up), and Kaldi's nnet1 and nnet3 do not "
            "support their sum; export it to ONNX"
        )
    parts = _layer_parts(network.layers, 1)
    return (
        parts
        if network.output_scales is None
        else [*parts[:-1], _scaled(affine_part(parts[-1]), array(network.output_scales))]
    )


@network_parts.register
def _(network: LayeredNetwork) -> list[Part]:
    parts, stride = [], 1
    for layer in (*network.layers, network.output):
        parts += _layer_parts(layer, stride)
        stride *= layer.stride if isinstance(layer, SequenceLayer) else 1
    return parts


@singledispatch
def _layer_parts(layer: nn.Module, stride: int) -> list[Part]:
    """The parts of a layer; one frame of its input corresponds to `stride` frames of features."""
    raise UserError(
        f"layers of type {type(layer).__name__} cannot be written in Kaldi's format; export the model to ONNX"
    )


@_layer_parts.register
def _(layer: nn.Sequential, stride: int) -> list[Part]:
    parts: list[Part] = []
    for one in layer:
        if isinstance(one, PNorm):
            affine = _regrouped(affine_part(parts[-1]), one.group_size)
            parts[-1:] = [affine, Norms(len(affine.bias) // one.group_size, one.group_size)]
        elif isinstance(one, tuple(_UNITS)):
            parts.append(Unit(_kind_of(one), dim_after(parts[-1])))
        else:
            parts += _layer_parts(one, stride)
    return parts


@_layer_parts.register
def _(layer: nn.Linear, stride: int) -> list[Part]:
    weight = array(layer.weight)
    return [Affine(weight, np.zeros(len(weight), np.float32) if layer.bias is None else array(layer.bias))]


@_layer_parts.register
def _(layer: Dropout, stride: int) -> list[Part]:
    return []


@_layer_parts.register
def _(layer: Stack, stride: int) -> list[Part]:
    return [*_layer_parts(layer.first, stride), *_layer_parts(layer.others, stride)]


@_layer_parts.register
def _(layer: Splice, stride: int) -> list[Part]:
    return [FrameSplice(tuple(offset * stride for offset in layer.offsets))] if layer.offsets != [0] else []


@_layer_parts.register
def _(layer: FactorisedTdnn, stride: int) -> list[Part]:
    chain = (layer.before, layer.linear, layer.after, layer.affine)
    parts = [part for one in chain for part in _layer_parts(one, stride * layer.stride)]
    parts += [Unit("relu", layer.dim_out), *_layer_parts(layer.norm, stride)]
    return [Bypass(layer.bypass_scale, parts)] if layer.bypass_scale else parts


@_layer_parts.register
def _(layer: nn.LayerNorm, stride: int) -> list[Part]:
    """The mean is subtracted, then frames are scaled; `layer.eps` is not added to their variance."""
    (dim,) = layer.normalized_shape
    centring = np.eye(dim, dtype=np.float32) - np.float32(1 / dim)
    return [Affine(centring, np.zeros(dim, np.float32), fixed=True), Unit("normalize", dim)]


@_layer_parts.register
def _(layer: Delay, stride: int) -> list[Part]:
    return [FrameSplice((layer.right * stride,))]


@_layer_parts.register
def _(layer: Crop, stride: int) -> list[Part]:
    return []  # context has no effect without a memory


_UNITS = {nn.ReLU: "relu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh", Normalize: "normalize"}


def _kind_of(layer: nn.Module) -> str:
    return next(kind for cls, kind in _UNITS.items() if isinstance(layer, cls))


def affine_part(part: Part) -> Affine:
    """The part, which must be affine."""
    assert isinstance(part, Affine)
    return part


def dim_after(part: Part) -> int:
    """The dimension of the output of an affine part, norms or units."""
    if isinstance(part, Affine):
        return len(part.bias)
    assert isinstance(part, (Norms, Unit))
    return part.dim


def _regrouped(affine: Affine, size: int) -> Affine:
    """The affine part with the rows of each group, which are not adjacent in `pyasr.nn.layers.nnet2_layers`,
    made adjacent."""
    order = np.arange(len(affine.bias)).reshape(size, -1).T.ravel()
    return Affine(affine.weight[order], affine.bias[order])


def _scaled(affine: Affine, factors: np.ndarray) -> Affine:
    return Affine(affine.weight * factors[:, None], affine.bias * factors)
