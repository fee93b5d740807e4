"""Convolutional layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.layers.sequence_layers import Convolution, pooled_bands
from pyasr.nn.networks.kinds.layer_register import kind


@kind("conv")
@dataclass(frozen=True)
class ConvolutionOptions:
    """Convolution over time and frequency, rectified, with max pooling over frequency."""

    channels: int = option(
        1, "channels of the input, each with all bands: 3 for features with two orders of deltas", minimum=1
    )
    filters: int = option(128, "channels of the output", minimum=1)
    time: int = option(3, "frames of a filter", minimum=1)
    bands: int = option(9, "frequency bands of a filter", minimum=1)
    pool: int = option(3, "adjacent bands of a max-pooling group", minimum=1)
    step: int = option(3, "bands between the starts of adjacent groups", minimum=1)

    def build(self, dim_in: int) -> Convolution:
        """The layer, uninitialised. Raises UserError if the input has too few bands."""
        bands, rest = divmod(dim_in, self.channels)
        if rest or pooled_bands(bands - self.bands + 1, self.pool, self.step) < 1:
            found = (
                f"{dim_in} inputs are not --channels {self.channels} of enough bands for --bands "
                f"{self.bands} and --pool {self.pool}"
            )
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
