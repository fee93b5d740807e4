"""The kinds of layers that a network file may name, and their options; `pyasr.nn.layered` reads such files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.nn.dropout import ByteDropout, SequenceDropout
from pyasr.nn.feed_forward import initialise_hidden, nonlinearity
from pyasr.nn.layers import Normalize
from pyasr.nn.linear import Linear
from pyasr.nn.lstm import Lstm
from pyasr.nn.options import ACTIVATIONS, GREATEST_SPREAD, DnnOptions
from pyasr.nn.semi_orthogonal import draw_semi_orthogonal, keep_semi_orthogonal
from pyasr.nn.sequence_layers import (
    Convolution, Crop, Delay, Recurrent, SequenceLayer, Splice, WindowRecurrent, initialise_as_kaldi, initialise_lstm,
    pooled_bands,
)  # fmt: skip
from pyasr.nn.tdnnf import FactorisedTdnn

KINDS: dict[str, type] = {}


def kind(name: str) -> Callable[[type], type]:
    """Class decorator: options of a layer that files call `name`, with a method `build(dim_in)`."""

    def add(cls: type) -> type:
        KINDS[name] = cls
        return cls

    return add


class Stack(SequenceLayer):
    """Layers that are one in a file: the first looks at times, the others change frames one by one, dropout, if any, comes last."""

    def __init__(self, first: SequenceLayer, *others: nn.Module, dropout: nn.Module | None, dim_out: int):
        super().__init__()
        self.first, self.others, self.dropout = first, nn.Sequential(*others), dropout or nn.Identity()
        self.left, self.right, self.stride, self.dim_out = first.left, first.right, first.stride, dim_out

    def forward(self, x: Tensor) -> Tensor:
        """As of all layers over time."""
        spliced = self.first(x)
        return self.dropout(self.others(spliced.flatten(0, 1)).view(*spliced.shape[:2], self.dim_out))


@dataclass(frozen=True)
class DropoutOptions:
    """Of layers whose outputs may be left out in training."""

    dropout: float = option(0.0, "share of units left out in training", minimum=0.0, maximum=0.9)
    dropout_per_dim: bool = option(False, "give units factors in 1 - 2p .. 1 + 2p instead, p the share, for a whole chunk each")

    def of_outputs(self) -> nn.Module | None:
        """The module, if there is dropout; raises UserError where the share is too great for factors."""
        if not self.dropout_per_dim:
            return ByteDropout(self.dropout) if self.dropout else None
        if self.dropout > GREATEST_SPREAD:
            raise UserError(f"--dropout {self.dropout:g}: with --dropout-per-dim the greatest allowed value is {GREATEST_SPREAD}")
        return SequenceDropout(self.dropout)


@kind("tdnn")
@dataclass(frozen=True)
class TdnnOptions(DropoutOptions):
    """Frames at some offsets, an affine map, a nonlinearity."""

    dim: int = option(512, "units", minimum=1)
    splice: str = option("0", "offsets of the frames that the layer sees: -1,0,1 or -2..2")
    stride: int = option(1, "frames for one output", minimum=1)
    activation: str = option("relu", "nonlinearity", choices=(*ACTIVATIONS, "none"))
    pnorm_group: int = option(10, "pnorm: elements of a group", minimum=1)
    normalize: bool = option(False, "scale the units to root mean square 1, frame by frame (pnorm: always, but with layer-norm)")
    layer_norm: bool = option(False, "bring the units to mean 0 and variance 1 instead, frame by frame")
    init: str = option("0", "standard deviation of initial weights; 0: by the nonlinearity; kaldi: 1 / sqrt(INPUTS), as in its TDNN")

    def build(self, dim_in: int) -> Stack:
        """The layer, without parameters worth the name; raises UserError for options that do not go together."""
        self.check()
        splice = Splice(dim_in, offsets_of(self.splice), self.stride)
        layers = [self._affine(splice.dim_out)]
        if self._shape is not None:
            layers.append(nonlinearity(self._shape))
        if self.layer_norm:
            layers.append(nn.LayerNorm(self.dim, elementwise_affine=False))
        elif self.normalize or self.activation == "pnorm":
            layers.append(Normalize())
        return Stack(splice, *layers, dropout=self.of_outputs(), dim_out=self.dim)

    def check(self) -> None:
        """Raise UserError where an option would do nothing, or is nothing that can be done."""
        self._stddev()
        if self.layer_norm and self.normalize:
            raise UserError("--normalize and --layer-norm: each scales the units in its own way; leave out one of the two")
        if self.activation != "pnorm" and self.pnorm_group != TdnnOptions.pnorm_group:
            raise UserError(f"--pnorm-group {self.pnorm_group}: for --activation pnorm alone; leave it out")

    def _affine(self, dim_in: int) -> Linear:
        return Linear(dim_in, self.dim if self._shape is None else self._shape.affine_dim)

    def _stddev(self) -> float | None:
        """Of initial weights; 0: by the nonlinearity, None: they are Kaldi's. Raises UserError for anything else."""
        return number_or_kaldi(self.init, "the standard deviation of initial weights")

    @property
    def _shape(self) -> DnnOptions | None:
        return None if self.activation == "none" else DnnOptions(1, self.dim, self.activation, self.pnorm_group)

    @torch.no_grad()
    def initialise(self, layer: Stack, is_first: bool, random: torch.Generator) -> None:
        """Random parameters, as those of a feed-forward network. Kaldi's, of steps/nnet3/components.py, are N(0, 1 / inputs), biases 0."""
        affine, stddev = layer.others[0], self._stddev()
        if self._shape is not None:
            initialise_hidden(affine, self._shape, is_first, random)
        if self._shape is None or stddev != 0:
            affine.weight.normal_(0, stddev or affine.in_features**-0.5, generator=random)
            affine.bias.zero_()


@kind("affine")
@dataclass(frozen=True)
class AffineOptions(TdnnOptions):
    """The same of single frames, unless told otherwise."""


@kind("linear")
@dataclass(frozen=True)
class LinearOptions(TdnnOptions):
    """An affine map, such as a bottleneck."""

    activation: str = option("none", "nonlinearity", choices=(*ACTIVATIONS, "none"))
    semi_orthogonal: bool = option(False, "keep the matrix semi-orthogonal; no biases (Kaldi: orthonormal-constraint=-1.0)")

    def check(self) -> None:
        """As of all layers with an affine map."""
        super().check()
        if self.semi_orthogonal and self.activation != "none":
            raise UserError(f"--activation {self.activation}: a semi-orthogonal layer is linear; leave out one of the two")
        if self.semi_orthogonal and self._stddev() != 0:
            raise UserError(f"--init {self.init}: a semi-orthogonal matrix begins as one; leave out one of the two")

    def _affine(self, dim_in: int) -> Linear:
        if not self.semi_orthogonal:
            return super()._affine(dim_in)
        return keep_semi_orthogonal(Linear(dim_in, self.dim, bias=False))

    @torch.no_grad()
    def initialise(self, layer: Stack, is_first: bool, random: torch.Generator) -> None:
        """Random parameters."""
        if self.semi_orthogonal:
            draw_semi_orthogonal(layer.others[0].weight, random)
        else:
            super().initialise(layer, is_first, random)


@kind("tdnnf")
@dataclass(frozen=True)
class TdnnfOptions:
    """A linear map to a bottleneck, an affine one from there, ReLU, a norm of the units frame by frame, a bypass."""

    dim: int = option(768, "units", minimum=1)
    bottleneck_dim: int = option(96, "elements of the bottleneck", minimum=1)
    time_stride: int = option(1, "frames back that the bottleneck sees, and on that the units see of it, beside the present one; 0: none",
                             minimum=0)  # fmt: skip
    stride: int = option(1, "frames for one output", minimum=1)
    bypass_scale: float = option(0.66, "factor on the layer's input, which is added to its output; 0: no bypass", minimum=0.0, maximum=1.0)
    dropout: float = option(0.0, "in training, units have a factor in 1 - 2p .. 1 + 2p, drawn for each chunk", minimum=0.0,
                            maximum=GREATEST_SPREAD)  # fmt: skip

    def build(self, dim_in: int) -> FactorisedTdnn:
        """The layer, without parameters worth the name; raises UserError where the bypass has nothing to be added to."""
        if self.bypass_scale and dim_in != self.dim:
            found = f"its input of {dim_in} elements cannot be added to {self.dim} units"
            raise UserError(f"{found}; give --dim {dim_in} or --bypass-scale 0")
        if self.stride > 1 and self.time_stride:
            found = f"--stride {self.stride} and --time-stride {self.time_stride} do not go together"
            raise UserError(f"{found}; let a layer that leaves out frames see single ones, with --time-stride 0")
        return FactorisedTdnn(dim_in, self.dim, self.bottleneck_dim, self.time_stride, self.stride, self.bypass_scale, self.dropout)

    @torch.no_grad()
    def initialise(self, layer: FactorisedTdnn, is_first: bool, random: torch.Generator) -> None:
        """Weights of variance 1 / inputs, as Kaldi's, the first matrix semi-orthogonal; biases 0: where Kaldi's are random, its norm of
        batches makes up for units that seldom are above 0, which one of frames does not."""
        draw_semi_orthogonal(layer.linear.weight, random)
        layer.affine.weight.normal_(0, layer.affine.in_features**-0.5, generator=random)
        layer.affine.bias.zero_()


@kind("conv")
@dataclass(frozen=True)
class ConvolutionOptions:
    """Convolution over time and frequency, rectified, with pooling over frequency."""

    channels: int = option(1, "channels of the input, each with all bands: 3 for features with two orders of deltas", minimum=1)
    filters: int = option(128, "channels of the output", minimum=1)
    time: int = option(3, "frames that a filter sees", minimum=1)
    bands: int = option(9, "frequency bands that a filter sees", minimum=1)
    pool: int = option(3, "neighbouring bands of which the greatest is taken", minimum=1)
    step: int = option(3, "bands from one such group to the next", minimum=1)

    def build(self, dim_in: int) -> Convolution:
        """The layer; raises UserError where the input has not as many bands."""
        bands, rest = divmod(dim_in, self.channels)
        if rest or pooled_bands(bands - self.bands + 1, self.pool, self.step) < 1:
            found = f"{dim_in} inputs are not --channels {self.channels} of enough bands for --bands {self.bands} and --pool {self.pool}"
            raise UserError(f"{found}; the input of the first layer are the features with deltas, channel by channel")
        if self.time % 2 == 0:
            raise UserError(f"--time {self.time}: a filter sees as many frames before as after its own; give an odd number")
        return Convolution(dim_in, self.channels, self.filters, self.time, self.bands, self.pool, self.step)

    @torch.no_grad()
    def initialise(self, layer: Convolution, is_first: bool, random: torch.Generator) -> None:
        """As rectifiers of as many inputs."""
        weight = layer.convolution.weight
        weight.normal_(0, (2 / weight[0].numel()) ** 0.5, generator=random)
        layer.convolution.bias.zero_()


@kind("lstm")
@dataclass(frozen=True)
class LstmOptions(DropoutOptions):
    """Long short-term memory, forwards in time."""

    cells: int = option(1024, "cells, of each direction", minimum=1)
    recurrent: int = option(0, "elements of the projection that are fed back; 0: no projection", minimum=0)
    nonrecurrent: int = option(0, "elements of the projection that are not", minimum=0)
    peepholes: bool = option(False, "let gates see the cells")
    clip: float = option(0.0, "greatest magnitude of a cell (Chan and Lane: 3); 0: any", minimum=0.0)
    bias: bool = option(True, "let gates have biases")
    init: str = option("0", "initial weights are uniform up to this magnitude; 0: 1 / sqrt(CELLS); kaldi: all as in its LSTMP")
    forget_bias: float = option(1.0, "initial bias of the forget gate")
    delay: int = option(1, "frames from which on a frame is remembered (Kaldi's layers: 1, 2, 3)", minimum=1)
    natural_peepholes: bool = option(False, "have --natural-gradient precondition the derivatives by peepholes too (Kaldi does)")
    projection_bias: bool = option(False, "let the projection have biases (Kaldi's has)")
    clip_gradient: float = option(0.0, "greatest length of a frame's derivatives by the cells, and by what is fed back, of a loss that is "
                                       "summed over frames (Kaldi: 30); 0: any", minimum=0.0)  # fmt: skip

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, without parameters worth the name."""
        return Recurrent([self._direction(dim_in, False)], self.of_outputs())

    def _direction(self, dim_in: int, backward: bool) -> Lstm:
        if self.nonrecurrent and not self.recurrent:
            raise UserError(f"--nonrecurrent {self.nonrecurrent}: without --recurrent there is no projection; give both or neither")
        if self.projection_bias and not self.recurrent:
            raise UserError("--projection-bias: without --recurrent there is no projection; give both or neither")
        if self.natural_peepholes and not self.peepholes:
            raise UserError("--natural-peepholes: there are none without --peepholes true; give both or neither")
        if self._width is None and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(f"--forget-bias {self.forget_bias:g}: with --init kaldi all biases are random; leave it out")
        if not self.bias and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(f"--forget-bias {self.forget_bias:g}: with --bias false there is none; leave it out")
        return Lstm(dim_in, self.cells, self.recurrent, self.nonrecurrent, self.peepholes, self.clip, self.delay, backward, self.bias,
                    self.projection_bias, self.clip_gradient, self.natural_peepholes)  # fmt: skip

    @property
    def _width(self) -> float | None:
        """The greatest magnitude of uniform initial weights; None: they are Kaldi's. Raises UserError for anything else."""
        return number_or_kaldi(self.init, "the greatest magnitude of initial weights")

    def initialise(self, layer: SequenceLayer, is_first: bool, random: torch.Generator) -> None:
        """Random parameters."""
        for lstm in layer.directions:
            if self._width is None:
                initialise_as_kaldi(lstm, random)
            else:
                initialise_lstm(lstm, self._width, self.forget_bias, random)


@kind("blstm")
@dataclass(frozen=True)
class BlstmOptions(LstmOptions):
    """The same in both directions of time."""

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, without parameters worth the name."""
        return Recurrent([self._direction(dim_in, backward) for backward in (False, True)], self.of_outputs())


@kind("window-blstm")
@dataclass(frozen=True)
class WindowBlstmOptions(LstmOptions):
    """The same over a window around each frame, of which the ends are taken."""

    left: int = option(10, "frames of the window before its own", minimum=0)
    right: int = option(10, "frames of the window after its own", minimum=0)

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, without parameters worth the name."""
        directions = [self._direction(dim_in, backward) for backward in (False, True)]
        return WindowRecurrent(directions, self.left, self.right, self.of_outputs())


@kind("delay")
@dataclass(frozen=True)
class DelayOptions:
    """Answers come some frames late."""

    frames: int = option(5, "how many", minimum=1)

    def build(self, dim_in: int) -> Delay:
        """The layer."""
        return Delay(dim_in, self.frames)


@kind("crop")
@dataclass(frozen=True)
class CropOptions:
    """Frames that were there for memory alone."""

    left: int = option(0, "the first of a chunk", minimum=0)
    right: int = option(0, "the last of a chunk", minimum=0)

    def build(self, dim_in: int) -> Crop:
        """The layer."""
        return Crop(dim_in, self.left, self.right)


def number_or_kaldi(init: str, meaning: str) -> float | None:
    """The number of an option `init`, None for `kaldi`. Raises UserError, telling what the number means, for anything else."""
    if init == "kaldi":
        return None
    try:
        number = float(init)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UserError(f"--init {init}: give 0 or more, {meaning}, or kaldi")
    return number


def offsets_of(text: str) -> list[int]:
    """-2..2 or -1,0,1 as a list, ascending and without repetition. Raises UserError for anything else."""
    try:
        first, dots, last = text.partition("..")
        found = list(range(int(first), int(last) + 1)) if dots else [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or found != sorted(set(found)):
        raise UserError(f"--splice {text}: offsets are ascending whole numbers like -1,0,1 or a range like -2..2")
    return found
