"""The random numbers of networks: those of initial parameters are the same on all ranks, those of dropout are each rank's own."""

from __future__ import annotations

import torch

from pyasr.base.cli.seeds import generator


def initial_random(seed: int) -> torch.Generator:
    """Of initial parameters."""
    return torch.Generator().manual_seed(int(generator(seed, "initial").integers(1 << 31)))


def dropout_seed(seed: int, rank: int) -> int:
    """Of torch's random numbers on a rank."""
    return int(generator(seed, "dropout", rank).integers(1 << 31))


def seed_dropout(seed: int, rank: int) -> None:
    """Begin torch's random numbers of a rank."""
    torch.manual_seed(dropout_seed(seed, rank))
