"""Random numbers of networks: initial parameters are the same on all ranks, dropout differs by rank."""

from __future__ import annotations

import torch

from pyasr.base.cli.seeds import generator


def initial_random(seed: int) -> torch.Generator:
    """Generator of the initial parameters, the same on all ranks."""
    return torch.Generator().manual_seed(int(generator(seed, "initial").integers(1 << 31)))


def dropout_seed(seed: int, rank: int) -> int:
    """Seed of PyTorch's global random numbers on a rank."""
    return int(generator(seed, "dropout", rank).integers(1 << 31))


def seed_dropout(seed: int, rank: int) -> None:
    """Seed PyTorch's global random numbers of a rank."""
    torch.manual_seed(dropout_seed(seed, rank))
