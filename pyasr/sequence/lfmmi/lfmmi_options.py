"""Options of the objective of LF-MMI."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import option


@dataclass(frozen=True)
class LfMmiOptions:
    """Constants of the objective."""

    heading = "objective"

    leaky_hmm_coefficient: float = option(
        1e-5, "weight of transitions between any two denominator states", minimum=1e-6, maximum=1.0, rare=True
    )
    l2_regularize: float = option(
        5e-5, "weight of the squared outputs of the network (L2 penalty)", minimum=0.0
    )
