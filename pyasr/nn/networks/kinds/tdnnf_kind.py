"""Factorised TDNN layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.layers.semi_orthogonal import draw_semi_orthogonal
from pyasr.nn.layers.tdnnf import FactorisedTdnn
from pyasr.nn.network_options import MAX_SPREAD
from pyasr.nn.networks.kinds.layer_register import kind


@kind("tdnnf")
@dataclass(frozen=True)
class TdnnfOptions:
    """A linear map to a bottleneck, an affine map to units, ReLU, a norm of each frame's units, a bypass."""

    dim: int = option(768, "number of units", minimum=1)
    bottleneck_dim: int = option(96, "elements of the bottleneck", minimum=1)
    time_stride: int = option(
        1,
        "offset in frames of the bottleneck's 2nd input (back) and of the units' 2nd input (forward); 0: "
        "none",
        minimum=0,
    )
    stride: int = option(1, "input frames per output frame", minimum=1)
    bypass_scale: float = option(
        0.66, "factor on the layer's input, added to its output; 0: no bypass", minimum=0.0, maximum=1.0
    )
    dropout: float = option(
        0.0,
        "p: in training, multiply units by random factors in 1 - 2p .. 1 + 2p, one per chunk",
        minimum=0.0,
        maximum=MAX_SPREAD,
    )

    def build(self, dim_in: int) -> FactorisedTdnn:
        """The layer, uninitialised. Raises UserError if input and output of the bypass differ in size."""
        if self.bypass_scale and dim_in != self.dim:
            found = f"its input of {dim_in} elements cannot be added to {self.dim} units"
            raise UserError(f"{found}; give --dim {dim_in} or --bypass-scale 0")
        if self.stride > 1 and self.time_stride:
            found = f"--stride {self.stride} and --time-stride {self.time_stride} cannot be combined"
            raise UserError(f"{found}; give --time-stride 0 to a layer that subsamples frames")
        return FactorisedTdnn(
            dim_in,
            self.dim,
            self.bottleneck_dim,
            self.time_stride,
            self.stride,
            self.bypass_scale,
            self.dropout,
        )

    @torch.no_grad()
    def initialise(self, layer: FactorisedTdnn, is_first: bool, random: torch.Generator) -> None:
        """Draw weights of variance 1 / inputs, as Kaldi's, the first matrix semi-orthogonal; biases are 0.
        Kaldi's are random, but its batch norm compensates for units that are rarely positive, which a norm
        over a frame's units does not."""
        draw_semi_orthogonal(layer.linear.weight, random)
        layer.affine.weight.normal_(0, layer.affine.in_features**-0.5, generator=random)
        layer.affine.bias.zero_()
