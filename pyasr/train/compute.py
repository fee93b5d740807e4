"""The device on which a rank computes, and the number type of its products."""

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
    """Device, minibatch and number type of a rank."""

    heading = "optimisation"

    minibatch: int = option(512, "frames per minibatch", minimum=1, common=True)
    precision: str = option(
        "auto",
        "number type of matrix products; auto: bfloat16 if the device multiplies it natively, "
        "else float32; tf32: float32, multiplied by a GPU with 10-bit mantissas",
        choices=("auto", "float32", "tf32", "bfloat16"),
    )

    def check(self) -> None:
        """Raise UserError if the options name a type that the device does not support."""
        if self.precision == TF32 and self.device == "cpu":
            raise UserError(f"--precision {TF32} needs a GPU, but --device is cpu; give --precision float32")

    def torch_dtype(self) -> torch.dtype:
        """The type of the operands of products. Raises UserError if the device does not support it."""
        import torch

        self.check()
        if self.precision == "auto":
            return torch.bfloat16 if multiplies_bfloat16(self.torch_device()) else torch.float32
        if self.precision == TF32:
            if self.torch_device().type == "cpu":
                raise UserError(
                    f"--precision {TF32} needs a GPU, but torch finds none here; give --precision float32"
                )
            return torch.float32
        return getattr(torch, self.precision)

    def products(self) -> str:
        """The name of the type of the products."""
        return self.precision if self.precision == TF32 else str(self.torch_dtype()).removeprefix("torch.")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether `device` multiplies bfloat16 natively, and thus faster than float32."""
    import torch

    from pyasr.tensor import processor

    if device.type == "cuda":
        # older GPUs emulate it, more slowly than float32
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return processor.multiplies_bfloat16()
