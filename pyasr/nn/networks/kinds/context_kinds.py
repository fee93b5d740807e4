"""Layers that shift or remove frames."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import option
from pyasr.nn.layers.sequence_layers import Crop, Delay
from pyasr.nn.networks.kinds.layer_register import kind


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
