"""Dropout of units in training."""

from __future__ import annotations

import torch
from torch import nn

from pyasr.tensor.random_bits import random_integers


class Dropout(nn.Module):
    """Base of all kinds of dropout: `share`, the proportion, may be changed during training."""

    def __init__(self, share: float):
        super().__init__()
        self.share = share


def set_dropout(network: nn.Module, share: float) -> None:
    """Set the proportion of all dropout in a network."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.share = share


def has_dropout(network: nn.Module) -> bool:
    """Whether a network has dropout, even with proportion 0."""
    return any(isinstance(module, Dropout) for module in network.modules())


class ByteDropout(Dropout):
    """Dropout that draws one random byte per unit, at an eighth of the cost of `nn.Dropout` on a CPU; shares
    are multiples of 1/256."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training, set random elements of `x` to 0 and scale the others by the inverse proportion of
        survivors; else return `x`."""
        threshold = round(256 * self.share)
        if not self.training or not threshold:
            return x
        kept = random_integers(x.shape, torch.uint8, x.device) >= threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - threshold))


class SequenceDropout(Dropout):
    """Random factors instead of zeros, one per sequence and unit, constant over time: uniform in
    [1 - 2 p, 1 + 2 p] with p the share (Kaldi's dropout-per-dim-continuous)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training, multiply (T, N, D) by such factors; else return `x`."""
        if not self.training or not self.share:
            return x
        factors = torch.empty(x.shape[1:], device=x.device).uniform_(1 - 2 * self.share, 1 + 2 * self.share)
        return x * factors.to(x.dtype)
