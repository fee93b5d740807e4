"""Kinds of layers in network files, and their options; `pyasr.nn.networks.layered` reads these files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.dropout import ByteDropout, SequenceDropout
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.lstm import Lstm
from pyasr.nn.layers.nnet2_layers import Normalize
from pyasr.nn.layers.semi_orthogonal import draw_semi_orthogonal, keep_semi_orthogonal
from pyasr.nn.layers.sequence_layers import (
    Convolution, Crop, Delay, Recurrent, SequenceLayer, Splice, WindowRecurrent, initialise_as_kaldi, initialise_lstm,
    pooled_bands,
)  # fmt: skip
from pyasr.nn.layers.tdnnf import FactorisedTdnn
from pyasr.nn.network_options import ACTIVATIONS, GREATEST_SPREAD, DnnOptions
from pyasr.nn.networks.feed_forward import initialise_hidden, nonlinearity

KINDS: dict[str, type] = {}


def kind(name: str) -> Callable[[type], type]:
    """Class decorator: register options of a layer, with a method `build(dim_in)`, under the name used in files."""

    def add(cls: type) -> type:
        KINDS[name] = cls
        return cls

    return add


class Stack(SequenceLayer):
    """Layers that are one layer in a file: the first combines frames, the others act on single frames, optional dropout is last."""

    def __init__(self, first: SequenceLayer, *others: nn.Module, dropout: nn.Module | None, dim_out: int):
        super().__init__()
        self.first, self.others, self.dropout = first, nn.Sequential(*others), dropout or nn.Identity()
        self.left, self.right, self.stride, self.dim_out = first.left, first.right, first.stride, dim_out

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers to (T, N, D)."""
        spliced = self.first(x)
        return self.dropout(self.others(spliced.flatten(0, 1)).view(*spliced.shape[:2], self.dim_out))


@dataclass(frozen=True)
class DropoutOptions:
    """Options of layers with dropout of their outputs."""

    dropout: float = option(0.0, "proportion of units dropped in training", minimum=0.0, maximum=0.9)
    dropout_per_dim: bool = option(False, "instead, multiply units by random factors in 1 - 2p .. 1 + 2p (p: --dropout), one per chunk")

    def of_outputs(self) -> nn.Module | None:
        """The dropout module, or None. Raises UserError if the proportion is too large for factors."""
        if not self.dropout_per_dim:
            return ByteDropout(self.dropout) if self.dropout else None
        if self.dropout > GREATEST_SPREAD:
            raise UserError(f"--dropout {self.dropout:g}: with --dropout-per-dim the maximum is {GREATEST_SPREAD}")
        return SequenceDropout(self.dropout)


@kind("tdnn")
@dataclass(frozen=True)
class TdnnOptions(DropoutOptions):
    """Spliced frames, an affine map, a nonlinearity."""

    dim: int = option(512, "number of units", minimum=1)
    splice: str = option("0", "offsets of the input frames: -1,0,1 or -2..2")
    stride: int = option(1, "input frames per output frame", minimum=1)
    activation: str = option("relu", "nonlinearity", choices=(*ACTIVATIONS, "none"))
    pnorm_group: int = option(10, "elements of a p-norm group", minimum=1)
    normalize: bool = option(False, "scale the units of each frame to root mean square 1 (always with pnorm, except with layer-norm)")
    layer_norm: bool = option(False, "instead, normalise the units of each frame to mean 0 and variance 1")
    init: str = option("0", "standard deviation of initial weights; 0: by the nonlinearity; kaldi: 1 / sqrt(INPUTS), as in its TDNN")

    def build(self, dim_in: int) -> Stack:
        """The layer, uninitialised. Raises UserError for incompatible options."""
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
        """Raise UserError for options that have no effect or cannot be combined."""
        self._stddev()
        if self.layer_norm and self.normalize:
            raise UserError("--normalize and --layer-norm both normalise the units; omit one of them")
        if self.activation != "pnorm" and self.pnorm_group != TdnnOptions.pnorm_group:
            raise UserError(f"--pnorm-group {self.pnorm_group}: needs --activation pnorm; omit the option")

    def _affine(self, dim_in: int) -> Linear:
        return Linear(dim_in, self.dim if self._shape is None else self._shape.affine_dim)

    def _stddev(self) -> float | None:
        """Standard deviation of initial weights; 0: by the nonlinearity, None: Kaldi's. Raises UserError for other values."""
        return number_or_kaldi(self.init, "the standard deviation of initial weights")

    @property
    def _shape(self) -> DnnOptions | None:
        return None if self.activation == "none" else DnnOptions(1, self.dim, self.activation, self.pnorm_group)

    @torch.no_grad()
    def initialise(self, layer: Stack, is_first: bool, random: torch.Generator) -> None:
        """Draw parameters as in a feed-forward network. Kaldi's (steps/nnet3/components.py) are N(0, 1 / inputs), biases 0."""
        affine, stddev = layer.others[0], self._stddev()
        if self._shape is not None:
            initialise_hidden(affine, self._shape, is_first, random)
        if self._shape is None or stddev != 0:
            affine.weight.normal_(0, stddev or affine.in_features**-0.5, generator=random)
            affine.bias.zero_()


@kind("affine")
@dataclass(frozen=True)
class AffineOptions(TdnnOptions):
    """An affine map of single frames and a nonlinearity; options as for tdnn."""


@kind("linear")
@dataclass(frozen=True)
class LinearOptions(TdnnOptions):
    """An affine map, such as a bottleneck."""

    activation: str = option("none", "nonlinearity", choices=(*ACTIVATIONS, "none"))
    semi_orthogonal: bool = option(False, "keep the matrix semi-orthogonal, without biases (Kaldi: orthonormal-constraint=-1.0)")

    def check(self) -> None:
        """Raise UserError for options that have no effect or cannot be combined."""
        super().check()
        if self.semi_orthogonal and self.activation != "none":
            raise UserError(f"--activation {self.activation}: a semi-orthogonal layer is linear; omit one of the two options")
        if self.semi_orthogonal and self._stddev() != 0:
            raise UserError(f"--init {self.init}: a semi-orthogonal matrix is initialised as such; omit one of the two options")

    def _affine(self, dim_in: int) -> Linear:
        if not self.semi_orthogonal:
            return super()._affine(dim_in)
        return keep_semi_orthogonal(Linear(dim_in, self.dim, bias=False))

    @torch.no_grad()
    def initialise(self, layer: Stack, is_first: bool, random: torch.Generator) -> None:
        """Draw parameters."""
        if self.semi_orthogonal:
            draw_semi_orthogonal(layer.others[0].weight, random)
        else:
            super().initialise(layer, is_first, random)


@kind("tdnnf")
@dataclass(frozen=True)
class TdnnfOptions:
    """A linear map to a bottleneck, an affine map to the units, ReLU, a norm of each frame's units, a bypass."""

    dim: int = option(768, "number of units", minimum=1)
    bottleneck_dim: int = option(96, "elements of the bottleneck", minimum=1)
    time_stride: int = option(1, "offset in frames of the bottleneck's 2nd input (back) and of the units' 2nd input (forward); 0: none",
                             minimum=0)  # fmt: skip
    stride: int = option(1, "input frames per output frame", minimum=1)
    bypass_scale: float = option(0.66, "factor on the layer's input, added to its output; 0: no bypass", minimum=0.0, maximum=1.0)
    dropout: float = option(0.0, "p: in training, multiply units by random factors in 1 - 2p .. 1 + 2p, one per chunk", minimum=0.0,
                            maximum=GREATEST_SPREAD)  # fmt: skip

    def build(self, dim_in: int) -> FactorisedTdnn:
        """The layer, uninitialised. Raises UserError if input and output of the bypass differ in size."""
        if self.bypass_scale and dim_in != self.dim:
            found = f"its input of {dim_in} elements cannot be added to {self.dim} units"
            raise UserError(f"{found}; give --dim {dim_in} or --bypass-scale 0")
        if self.stride > 1 and self.time_stride:
            found = f"--stride {self.stride} and --time-stride {self.time_stride} cannot be combined"
            raise UserError(f"{found}; give --time-stride 0 to a layer that subsamples frames")
        return FactorisedTdnn(dim_in, self.dim, self.bottleneck_dim, self.time_stride, self.stride, self.bypass_scale, self.dropout)

    @torch.no_grad()
    def initialise(self, layer: FactorisedTdnn, is_first: bool, random: torch.Generator) -> None:
        """Draw weights of variance 1 / inputs, as Kaldi's, the first matrix semi-orthogonal; biases are 0. Kaldi's are random, but its
        batch norm compensates for units that are rarely positive, which a norm over a frame's units does not."""
        draw_semi_orthogonal(layer.linear.weight, random)
        layer.affine.weight.normal_(0, layer.affine.in_features**-0.5, generator=random)
        layer.affine.bias.zero_()


@kind("conv")
@dataclass(frozen=True)
class ConvolutionOptions:
    """Convolution over time and frequency, rectified, with max pooling over frequency."""

    channels: int = option(1, "channels of the input, each with all bands: 3 for features with two orders of deltas", minimum=1)
    filters: int = option(128, "channels of the output", minimum=1)
    time: int = option(3, "frames of a filter", minimum=1)
    bands: int = option(9, "frequency bands of a filter", minimum=1)
    pool: int = option(3, "adjacent bands of a max-pooling group", minimum=1)
    step: int = option(3, "bands between the starts of adjacent groups", minimum=1)

    def build(self, dim_in: int) -> Convolution:
        """The layer, uninitialised. Raises UserError if the input has too few bands."""
        bands, rest = divmod(dim_in, self.channels)
        if rest or pooled_bands(bands - self.bands + 1, self.pool, self.step) < 1:
            found = f"{dim_in} inputs are not --channels {self.channels} of enough bands for --bands {self.bands} and --pool {self.pool}"
            raise UserError(f"{found}; the first layer expects features with deltas, channel by channel")
        if self.time % 2 == 0:
            raise UserError(f"--time {self.time}: a filter is centred on its frame; give an odd number")
        return Convolution(dim_in, self.channels, self.filters, self.time, self.bands, self.pool, self.step)

    @torch.no_grad()
    def initialise(self, layer: Convolution, is_first: bool, random: torch.Generator) -> None:
        """Draw weights as for rectifiers with the same number of inputs."""
        weight = layer.convolution.weight
        weight.normal_(0, (2 / weight[0].numel()) ** 0.5, generator=random)
        layer.convolution.bias.zero_()


@kind("lstm")
@dataclass(frozen=True)
class LstmOptions(DropoutOptions):
    """Long short-term memory, forward in time."""

    cells: int = option(1024, "number of cells, per direction", minimum=1)
    recurrent: int = option(0, "elements of the projection that are fed back; 0: no projection", minimum=0)
    nonrecurrent: int = option(0, "elements of the projection that are not fed back", minimum=0)
    peepholes: bool = option(False, "connect the cells to the gates (peepholes)")
    clip: float = option(0.0, "clip cells to [-c, c] (Chan and Lane: 3); 0 disables clipping", minimum=0.0)
    bias: bool = option(True, "biases of the gates")
    init: str = option("0", "maximum magnitude of uniform initial weights; 0: 1 / sqrt(CELLS); kaldi: all as in its LSTMP")
    forget_bias: float = option(1.0, "initial bias of the forget gate")
    delay: int = option(1, "frames between a frame and its recurrent input (Kaldi's layers: 1, 2, 3)", minimum=1)
    natural_peepholes: bool = option(False, "let --natural-gradient precondition the derivatives of peepholes, too (as Kaldi)")
    projection_bias: bool = option(False, "biases of the projection (as Kaldi)")
    clip_gradient: float = option(0.0, "maximum norm of a frame's derivatives by the cells and by the recurrent input, for a loss summed "
                                       "over frames (Kaldi: 30); 0 disables clipping", minimum=0.0)  # fmt: skip

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        return Recurrent([self._direction(dim_in, False)], self.of_outputs())

    def _direction(self, dim_in: int, backward: bool) -> Lstm:
        if self.nonrecurrent and not self.recurrent:
            raise UserError(f"--nonrecurrent {self.nonrecurrent}: without --recurrent there is no projection; give both or neither")
        if self.projection_bias and not self.recurrent:
            raise UserError("--projection-bias: without --recurrent there is no projection; give both or neither")
        if self.natural_peepholes and not self.peepholes:
            raise UserError("--natural-peepholes: needs --peepholes true; give both or neither")
        if self._width is None and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(f"--forget-bias {self.forget_bias:g}: with --init kaldi all biases are random; omit the option")
        if not self.bias and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(f"--forget-bias {self.forget_bias:g}: with --bias false there is no bias; omit the option")
        return Lstm(dim_in, self.cells, self.recurrent, self.nonrecurrent, self.peepholes, self.clip, self.delay, backward, self.bias,
                    self.projection_bias, self.clip_gradient, self.natural_peepholes)  # fmt: skip

    @property
    def _width(self) -> float | None:
        """Maximum magnitude of uniform initial weights; None: Kaldi's initialisation. Raises UserError for other values."""
        return number_or_kaldi(self.init, "the maximum magnitude of initial weights")

    def initialise(self, layer: SequenceLayer, is_first: bool, random: torch.Generator) -> None:
        """Draw parameters."""
        for lstm in layer.directions:
            if self._width is None:
                initialise_as_kaldi(lstm, random)
            else:
                initialise_lstm(lstm, self._width, self.forget_bias, random)


@kind("blstm")
@dataclass(frozen=True)
class BlstmOptions(LstmOptions):
    """LSTM in both directions of time."""

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        return Recurrent([self._direction(dim_in, backward) for backward in (False, True)], self.of_outputs())


@kind("window-blstm")
@dataclass(frozen=True)
class WindowBlstmOptions(LstmOptions):
    """Bidirectional LSTM over a window around each frame; its outputs at the ends of the window are used."""

    left: int = option(10, "frames of the window before the frame", minimum=0)
    right: int = option(10, "frames of the window after the frame", minimum=0)

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        directions = [self._direction(dim_in, backward) for backward in (False, True)]
        return WindowRecurrent(directions, self.left, self.right, self.of_outputs())


@kind("delay")
@dataclass(frozen=True)
class DelayOptions:
    """Delay of the output by some frames."""

    frames: int = option(5, "number of frames", minimum=1)

    def build(self, dim_in: int) -> Delay:
        """The layer."""
        return Delay(dim_in, self.frames)


@kind("crop")
@dataclass(frozen=True)
class CropOptions:
    """Removal of frames that only serve as context."""

    left: int = option(0, "frames to remove at the beginning of a chunk", minimum=0)
    right: int = option(0, "frames to remove at the end of a chunk", minimum=0)

    def build(self, dim_in: int) -> Crop:
        """The layer."""
        return Crop(dim_in, self.left, self.right)


def number_or_kaldi(init: str, meaning: str) -> float | None:
    """The number of an option `init`; None for `kaldi`. Raises UserError, with the number's meaning, for other values."""
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
    """Parse -2..2 or -1,0,1 into an ascending list without repetitions. Raises UserError for other texts."""
    try:
        first, dots, last = text.partition("..")
        found = list(range(int(first), int(last) + 1)) if dots else [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or found != sorted(set(found)):
        raise UserError(f"--splice {text}: offsets must be ascending integers like -1,0,1 or a range like -2..2")
    return found
