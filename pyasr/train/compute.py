"""Where a rank computes, and in which type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasr.base.options import option
from pyasr.nn.device import DeviceOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ComputeOptions(DeviceOptions):
    """How a rank computes."""

    minibatch: int = option(512, "frames of a minibatch", minimum=1)
    precision: str = option("auto", "type of the products; auto: bfloat16 where that is native", choices=("auto", "float32", "bfloat16"))

    def torch_dtype(self) -> torch.dtype:
        """The type of the products."""
        import torch

        if self.precision == "auto":
            return torch.bfloat16 if multiplies_bfloat16(self.torch_device()) else torch.float32
        return getattr(torch, self.precision)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are native on `device`, and thus faster than float32."""
    import torch

    from pyasr.tensor import processor

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)  # older GPUs compute it too, more slowly than float32
    return processor.multiplies_bfloat16()
