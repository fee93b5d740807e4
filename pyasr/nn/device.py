"""Device on which a network computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DeviceOptions:
    """CPU or GPU."""

    heading = "resources"

    device: str = option(
        "auto", "device to compute on; auto: cuda if a GPU is available", choices=("auto", "cpu", "cuda")
    )

    def torch_device(self) -> torch.device:
        """The device to compute on. Raises UserError if `cuda` is requested but not available."""
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: torch finds no GPU on this host; give --device cpu")
        return torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")
