"""Where a rank computes, and in which type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.device import DeviceOptions

if TYPE_CHECKING:
    import torch

TF32 = "tf32"


@dataclass(frozen=True)
class ComputeOptions(DeviceOptions):
    """How a rank computes."""

    minibatch: int = option(512, "frames of a minibatch", minimum=1)
    precision: str = option("auto", "type of the products; auto: bfloat16 where that is native; tf32: float32, which a GPU multiplies "
                                    "with 10 bits of its mantissa", choices=("auto", "float32", "tf32", "bfloat16"))  # fmt: skip

    def check(self) -> None:
        """Raise UserError for a type that the device does not have, as far as the options say."""
        if self.precision == TF32 and self.device == "cpu":
            raise UserError(f"--precision {TF32}: only GPUs multiply in it, not the CPU of --device cpu; give --precision float32")

    def torch_dtype(self) -> torch.dtype:
        """The type of what is multiplied. Raises UserError where the device does not have it."""
        import torch

        self.check()
        if self.precision == "auto":
            return torch.bfloat16 if multiplies_bfloat16(self.torch_device()) else torch.float32
        if self.precision == TF32:
            if self.torch_device().type == "cpu":
                raise UserError(f"--precision {TF32}: only GPUs multiply in it, and torch finds none here; give --precision float32")
            return torch.float32
        return getattr(torch, self.precision)

    def products(self) -> str:
        """The name of the type of the products."""
        return self.precision if self.precision == TF32 else str(self.torch_dtype()).removeprefix("torch.")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are native on `device`, and thus faster than float32."""
    import torch

    from pyasr.tensor import processor

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)  # older GPUs compute it too, more slowly than float32
    return processor.multiplies_bfloat16()
