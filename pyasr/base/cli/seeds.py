"""Random number streams that do not depend on the number of jobs or the order of work."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.options import option


@dataclass(frozen=True)
class SeedOptions:
    """Seed of the random numbers of a training."""

    heading = "optimisation"

    train_seed: int = option(777, "seed of initial parameters, shuffling and dropout", rare=True)


def generator(seed: int, *names: object) -> np.random.Generator:
    """A random generator for one purpose: the same `seed` and `names` (utterance, layer, epoch) always give
    the same numbers."""
    digest = hashlib.sha256(repr((seed, *map(str, names))).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))
