"""Units left out at random while a network is trained."""

from __future__ import annotations

import torch
from torch import nn

from pyasr.tensor.random_bits import random_integers


class ByteDropout(nn.Module):
    """Dropout that draws one random byte for each unit, an eighth of the cost of `nn.Dropout` on a CPU; shares are multiples of 1/256."""

    def __init__(self, share: float):
        super().__init__()
        self.threshold = round(256 * share)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training, `x` with random elements 0 and the others scaled up by the inverse share of survivors; otherwise `x` itself."""
        if not self.training:
            return x
        kept = random_integers(x.shape, torch.uint8, x.device) >= self.threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - self.threshold))


class SequenceDropout(nn.Module):
    """Factors at random instead of zeros, one for each sequence and unit, the same at all times: uniform in [1 - 2 p, 1 + 2 p] (Kaldi's
    dropout-per-dim-continuous)."""

    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training (T, N, D) times such factors; otherwise `x` itself."""
        if not self.training or not self.share:
            return x
        factors = torch.empty(x.shape[1:], device=x.device).uniform_(1 - 2 * self.share, 1 + 2 * self.share)
        return x * factors.to(x.dtype)
