"""What tests of all parallel schemes need to know of each, and how far a training had to go."""

from __future__ import annotations

import re

SCHEME_FLAGS = {"hadpsgd": ["--ranks-per-node", 2]}


def ranks_for(scheme: str) -> int:
    """Three where the scheme takes them: a server and two learners, a node of two ranks and one of one."""
    return 2 if scheme == "butterfly" else 3


def initial_objective(log: str) -> float:
    """Of the held-out data before training, by what the log says."""
    return float(re.search(r"initial model: held-out objective (\S+)", log)[1])
