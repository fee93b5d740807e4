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

from pyasr.base.options import option
from pyasr.parallel.flat import FlatParameters
from pyasr.train.compute import ComputeOptions


@dataclass(frozen=True)
class LearnerOptions(ComputeOptions):
    """How a rank learns."""

    momentum: float = option(0.0, "share of the last update in the next one", minimum=0.0, maximum=0.999)
    max_change: float = option(0.0, "greatest Euclidean norm of a minibatch's change of the parameters; 0: no limit", minimum=0.0)


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
