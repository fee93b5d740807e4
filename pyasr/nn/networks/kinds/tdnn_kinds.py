"""TDNN, affine and linear layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.layers.hidden_layers import initialise_hidden, nonlinearity
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.nnet2_layers import Normalize
from pyasr.nn.layers.semi_orthogonal import draw_semi_orthogonal, keep_semi_orthogonal
from pyasr.nn.layers.sequence_layers import Splice
from pyasr.nn.network_options import ACTIVATIONS, DnnOptions
from pyasr.nn.networks.kinds.layer_parts import DropoutOptions, Stack, number_or_kaldi, offsets_of
from pyasr.nn.networks.kinds.layer_register import kind


@kind("tdnn")
@dataclass(frozen=True)
class TdnnOptions(DropoutOptions):
    """Spliced frames, an affine map, a nonlinearity."""

    dim: int = option(512, "number of units", minimum=1)
    splice: str = option("0", "offsets of the input frames: -1,0,1 or -2..2")
    stride: int = option(1, "input frames per output frame", minimum=1)
    activation: str = option("relu", "nonlinearity", choices=(*ACTIVATIONS, "none"))
    pnorm_group: int = option(10, "elements of a p-norm group", minimum=1)
    normalize: bool = option(
        False,
        "scale the units of each frame to root mean square 1 (always with pnorm, except with layer-norm)",
    )
    layer_norm: bool = option(False, "instead, normalise the units of each frame to mean 0 and variance 1")
    init: str = option(
        "0",
        "standard deviation of initial weights; 0: by the nonlinearity; kaldi: 1 / sqrt(INPUTS), as in its "
        "TDNN",
    )

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
        """Standard deviation of initial weights; 0: by the nonlinearity, None: Kaldi's. Raises UserError for
        other values."""
        return number_or_kaldi(self.init, "the standard deviation of initial weights")

    @property
    def _shape(self) -> DnnOptions | None:
        return (
            None if self.activation == "none" else DnnOptions(1, self.dim, self.activation, self.pnorm_group)
        )

    @torch.no_grad()
    def initialise(self, layer: Stack, is_first: bool, random: torch.Generator) -> None:
        """Draw parameters as in a feed-forward network. Kaldi's (steps/nnet3/components.py) are N(0, 1 /
        inputs), biases 0."""
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
    semi_orthogonal: bool = option(
        False, "keep the matrix semi-orthogonal, without biases (Kaldi: orthonormal-constraint=-1.0)"
    )

    def check(self) -> None:
        """Raise UserError for options that have no effect or cannot be combined."""
        super().check()
        if self.semi_orthogonal and self.activation != "none":
            raise UserError(
                f"--activation {self.activation}: a semi-orthogonal layer is linear; omit one of the two "
                "options"
            )
        if self.semi_orthogonal and self._stddev() != 0:
            raise UserError(
                f"--init {self.init}: a semi-orthogonal matrix is initialised as such; omit one of the two "
                "options"
            )

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
