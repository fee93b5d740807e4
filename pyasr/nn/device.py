"""Where a network computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasr.base.errors import UserError
from pyasr.base.options import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DeviceOptions:
    """The processor or a GPU."""

    device: str = option("auto", "where to compute; auto: cuda if there is one", choices=("auto", "cpu", "cuda"))

    def torch_device(self) -> torch.device:
        """The device to compute on. Raises UserError where `cuda` is asked for and not there."""
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: torch finds no GPU here; give --device cpu")
        return torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")
