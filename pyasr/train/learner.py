r"""One rank's network and its stochastic gradient descent.

With the minibatch loss F = sum_t -log p(s_t | x_t), learning rate a (for summed gradients) and momentum m:

    v <- m v + dF/dtheta,   theta <- theta - a v min(1, c / |a v|)

where c is the greatest change of a minibatch in the Euclidean norm over all parameters (`--max-change`, Kaldi's nnet3 has the same): it
keeps large rates from throwing the parameters away in the first minibatches. All of it happens on flat buffers, see `pyasr.parallel.flat`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.parallel.flat import FlatParameters


@dataclass(frozen=True)
class LearnerOptions:
    """How a rank computes."""

    minibatch: int = option(512, "frames of a minibatch", minimum=1)
    momentum: float = option(0.0, "share of the last update in the next one", minimum=0.0, maximum=0.999)
    max_change: float = option(0.0, "greatest Euclidean norm of a minibatch's change of the parameters; 0: no limit", minimum=0.0)
    precision: str = option("auto", "type of the products; auto: bfloat16 where that is native", choices=("auto", "float32", "bfloat16"))
    device: str = option("auto", "where to train; auto: cuda if there is one", choices=("auto", "cpu", "cuda"))

    def torch_device(self) -> torch.device:
        """The device to train on. Raises UserError where `cuda` is asked for and not there."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: torch finds no GPU here; give --device cpu")
        return torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")

    def torch_dtype(self) -> torch.dtype:
        """The type of the products."""
        if self.precision == "auto":
            return torch.bfloat16 if multiplies_bfloat16(self.torch_device()) else torch.float32
        return getattr(torch, self.precision)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are native on `device`, and thus faster than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return "avx512_bf16" in _cpu_flags() or "amx_bf16" in _cpu_flags()


def _cpu_flags() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return ""  # harmless: no Linux, so float32


class Learner:
    """A network whose parameters lie flat, and one SGD step at a time."""

    def __init__(self, network: nn.Module, options: LearnerOptions):
        self.options = options
        self.momentum, self.max_change = options.momentum, options.max_change
        self.adopt(network)

    def adopt(self, network: nn.Module) -> None:
        """Go on with another network, such as a grown one: new flat buffers; what was remembered of earlier minibatches is forgotten."""
        self.network = network.to(self.options.torch_device())
        self.flat = FlatParameters(network.parameters(), self.options.torch_dtype())
        self.velocity = torch.zeros_like(self.flat.master) if self.momentum else None

    def state_dict(self) -> dict:
        """All that belongs to this rank beyond the parameters, as tensors and plain values for a checkpoint."""
        return {"velocity": self.velocity}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        if self.velocity is not None:
            self.velocity.copy_(state["velocity"])

    def step(self, x: torch.Tensor, pdfs: torch.Tensor, rate: float) -> torch.Tensor:
        """Update the master parameters from one minibatch. Returns float64 (loss, correct frames, frames), summed, on the device.

        The network sees the update after `flat.refresh()`.
        """
        self.network.train()
        logits = self.network(x).float()
        loss = F.cross_entropy(logits, pdfs, reduction="sum")
        loss.backward()
        self._update(rate)
        return _counts(loss.detach(), logits.detach(), pdfs)

    def _update(self, rate: float) -> None:
        direction = self.flat.grad
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(self.flat.grad)
        if self.max_change:
            change = torch.linalg.vector_norm(direction, dtype=torch.float32) * rate
            self.flat.master.addcmul_(direction, (self.max_change / change).clamp(max=1.0), value=-rate)
        else:
            self.flat.master.add_(direction, alpha=-rate)
        self.flat.grad.zero_()

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor, pdfs: torch.Tensor) -> torch.Tensor:
        """(loss, correct frames, frames) of a minibatch, as `step` gives them, without learning."""
        self.network.eval()
        logits = self.network(x).float()
        return _counts(F.cross_entropy(logits, pdfs, reduction="sum"), logits, pdfs)


def _counts(loss, logits, pdfs) -> torch.Tensor:
    correct = (logits.argmax(1) == pdfs).sum()
    return torch.stack([loss.double(), correct.double(), torch.full_like(correct, len(pdfs)).double()])
