r"""Storage of normalised features in memory: as floating-point numbers, or as one byte each.

A byte b = 0..254 stands for

    x = s sinh(a u),   u = (b - 127) / 127,   a = asinh(L / s)

in standard deviations of its column. Steps are uniform around 0, where they are 0.018, and proportional to
|x| beyond s = 0.6, where they are 3 % of |x|. For x ~ N(0, 1) the root mean squared error is sqrt((s^2 + 1) /
12) a / 127 = 0.010. Values beyond L = 16 are clipped. Kaldi's 8-bit archives have separate steps for each
utterance and column (`CompressedMatrix`); docs/networks/training_data.md compares the two.
"""

from __future__ import annotations

import math

import torch

_SOFT, _LARGEST, _TOP = 0.6, 16.0, 127
_RATE = math.asinh(_LARGEST / _SOFT)


class Plain:
    """Floating-point numbers of the type `stored`."""

    def __init__(self, stored: torch.dtype):
        self.stored = stored

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised features in the type in which they are stored."""
        return x.to(self.stored)

    def decode(self, kept: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Features of any shape, in the type in which the network computes."""
        return kept.to(dtype)


class Bytes:
    """One byte for each number, as described above."""

    stored = torch.uint8

    def __init__(self):
        self._table = byte_values()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised features as bytes."""
        return (torch.asinh(x / _SOFT) * (_TOP / _RATE)).round().add(_TOP).clamp(0, 2 * _TOP).to(torch.uint8)

    def decode(self, kept: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Features of any shape, in the type in which the network computes."""
        if self._table.device != kept.device or self._table.dtype != dtype:
            self._table = byte_values().to(kept.device, dtype)
        return self._table.index_select(0, kept.reshape(-1).int()).view(kept.shape)


def byte_values() -> torch.Tensor:
    """The value of each byte, float32 (256,); the last byte is never used."""
    u = (torch.arange(256, dtype=torch.float64) - _TOP) / _TOP
    return (_SOFT * torch.sinh(_RATE * u)).float()


def make_code(store_type: str, dtype: torch.dtype) -> Plain | Bytes:
    """The storage of `--store-type`; auto: the type `dtype` in which the network computes."""
    if store_type == "byte":
        return Bytes()
    return Plain(dtype if store_type == "auto" else getattr(torch, store_type))
