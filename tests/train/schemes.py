"""Properties of all parallel schemes for tests, and the initial objective of a training."""

from __future__ import annotations

import re

from scheme_toys import names_of

from pyasr.parallel.mixing.register import option_kinds

SCHEME_FLAGS = {"hadpsgd": ["--ranks-per-node", 2]}
# One scheme of each kind: gradients summed, parameters averaged, the mean moved further, a delay, pairs
# without a barrier, a server. tests/train/evolve/test_schemes_learn.py trains with all schemes.
KINDS_OF_SCHEMES = ["gradient", "allreduce", "bmuf", "d1d", "adpsgd", "asgd"]


def fitting(words) -> list:
    """Words of a command line, without --period-frames if the scheme that they name does not use it."""
    words = list(words)
    scheme = words[words.index("--parallel") + 1] if "--parallel" in words else "allreduce"
    while "--period-frames" in words and "period_frames" not in names_of(option_kinds()[scheme]):
        place = words.index("--period-frames")
        del words[place : place + 2]
    return words


def ranks_for(scheme: str) -> int:
    """Three ranks if the scheme supports them: a server and two learners, or a node of two ranks and one of
    one."""
    return 2 if scheme == "butterfly" else 3


def initial_objective(log: str) -> float:
    """Objective on the held-out data before training, from the log."""
    return float(re.search(r"initial model: held-out objective (\S+)", log)[1])
