"""What tests of all parallel schemes need to know of each, and how far a training had to go."""

from __future__ import annotations

import re

from scheme_toys import names_of

from pyasr.parallel.mixing.register import option_kinds

SCHEME_FLAGS = {"hadpsgd": ["--ranks-per-node", 2]}
# One scheme of each kind: gradients summed, parameters averaged, the mean moved further, a delay, pairs
# without a barrier, a server. tests/train/evolve/test_schemes_learn.py trains with all schemes.
KINDS_OF_SCHEMES = ["gradient", "allreduce", "bmuf", "d1d", "adpsgd", "asgd"]


def fitting(words) -> list:
    """Words of a command line, without --period-frames where the scheme that they name does not go by it."""
    words = list(words)
    scheme = words[words.index("--parallel") + 1] if "--parallel" in words else "allreduce"
    while "--period-frames" in words and "period_frames" not in names_of(option_kinds()[scheme]):
        place = words.index("--period-frames")
        del words[place : place + 2]
    return words


def ranks_for(scheme: str) -> int:
    """Three where the scheme takes them: a server and two learners, a node of two ranks and one of one."""
    return 2 if scheme == "butterfly" else 3


def initial_objective(log: str) -> float:
    """Of the held-out data before training, by what the log says."""
    return float(re.search(r"initial model: held-out objective (\S+)", log)[1])
