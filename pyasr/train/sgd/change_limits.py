"""Limits on the parameter change by one minibatch; `pyasr.train.sgd.learner` has the equations."""

from __future__ import annotations

import math

import torch

from pyasr.train.sgd.components import Component
from pyasr.train.training_options import LearnerOptions


def limits_of(
    components: list[Component], options: LearnerOptions, device: torch.device
) -> torch.Tensor | None:
    """m_c of each component, float64; infinite for a component without a limit. None if none has one."""
    per_layer = options.max_change_per_layer or math.inf
    of_output = options.max_change_of_output or per_layer
    limits = [of_output if component.is_output else per_layer for component in components]
    return None if min(limits) == math.inf else torch.tensor(limits, dtype=torch.float64, device=device)


def change_factors(
    lengths: torch.Tensor, limits: torch.Tensor | None, overall: float, momentum: float
) -> torch.Tensor:
    """s s_c of each component, from |f Delta_c| (float64) and m_c; M = 0 disables the overall limit."""
    s = 1 - momentum
    limited = torch.ones_like(lengths) if limits is None else (limits / (s * lengths)).clamp(max=1.0)
    if overall:
        total = s * (limited * lengths).norm()
        limited = limited * (overall / total).clamp(max=1.0)
    return s * limited
