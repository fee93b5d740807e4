"""Units left out at random while a network is trained."""

from __future__ import annotations

import torch
from torch import nn

from pyasr.tensor.random_bits import random_integers


class Dropout(nn.Module):
    """What all kinds have: `share`, how much, which may be changed while a network is trained."""

    def __init__(self, share: float):
        super().__init__()
        self.share = share


def set_dropout(network: nn.Module, share: float) -> None:
    """Change all dropout that there is in a network."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.share = share


def has_dropout(network: nn.Module) -> bool:
    """Whether there is any, be it of share 0."""
    return any(isinstance(module, Dropout) for module in network.modules())


class ByteDropout(Dropout):
    """Dropout that draws one random byte for each unit, an eighth of the cost of `nn.Dropout` on a CPU; shares are multiples of 1/256."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training, `x` with random elements 0 and the others scaled up by the inverse share of survivors; otherwise `x` itself."""
        threshold = round(256 * self.share)
        if not self.training or not threshold:
            return x
        kept = random_integers(x.shape, torch.uint8, x.device) >= threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - threshold))


class SequenceDropout(Dropout):
    """Factors at random instead of zeros, one for each sequence and unit, the same at all times: uniform in [1 - 2 p, 1 + 2 p] with p the
    share (Kaldi's dropout-per-dim-continuous)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training (T, N, D) times such factors; otherwise `x` itself."""
        if not self.training or not self.share:
            return x
        factors = torch.empty(x.shape[1:], device=x.device).uniform_(1 - 2 * self.share, 1 + 2 * self.share)
        return x * factors.to(x.dtype)
