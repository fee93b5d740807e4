r"""Elastic averaging: each rank has its own parameters, which a spring ties to a centre.

Reference: S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", arXiv:1412.6651,
the synchronous form. After a period of local training, with x_r the parameters of rank r = 1..P and c the
centre, of which every rank has a copy:

    d_r = alpha (x_r - c),     x_r <- x_r - d_r,     c <- c + sum_r d_r

One all-reduce of the x_r suffices. alpha is 0.9 / P by default: the centre then moves by 0.9 of its distance
from the mean. At the end of an epoch all ranks take the centre, which is the model.

A mixing multiplies the distance of the ranks' mean from the centre by 1 - alpha (1 + P). The distance
converges to 0 only if alpha is below 2 / (1 + P).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.parallel.mixing.periodic import PeriodicStrategy
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import PeriodicOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ElasticOptions(PeriodicOptions):
    """Options of elastic averaging."""

    elastic_rate: float | None = option(
        None,
        "fraction of the distance between a rank and the centre by which both move in a mixing; "
        "none: 0.9 / ranks",
        minimum=1e-9,
        maximum=1.0,
        rare=True,
    )


@register("easgd", options=ElasticOptions)
class ElasticAveraging(PeriodicStrategy):
    """Ties the ranks' parameters to `centre`, c."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.alpha, limit = options.elastic_rate or 0.9 / comm.size, 2 / (1 + comm.size)
        if comm.size > 1 and self.alpha >= limit:
            raise UserError(
                f"--elastic-rate {self.alpha:g} diverges with {comm.size} ranks; "
                f"give less than 2 / (1 + ranks) = {limit:.3f}, or omit the option for 0.9 / ranks"
            )

    def adopt(self, master: torch.Tensor) -> None:
        """Start with these parameters as the centre."""
        super().adopt(master)
        self.centre = master.clone()

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Apply the equations above; `shares` is ignored."""
        total = master.clone()
        self.wire.host.change(
            total, lambda array: self.wire.sum(array, 1.0, self.comm.size), self.wire.adds_pieces
        )
        master.lerp_(self.centre, self.alpha)
        self.centre.mul_(1 - self.alpha * self.comm.size).add_(total, alpha=self.alpha)
        self.wire.agree(self.centre)

    def consensus(self, master: torch.Tensor) -> None:
        """The centre."""
        master.copy_(self.centre)

    def state_dict(self) -> dict:
        """The base class's state and the centre."""
        return {**super().state_dict(), "centre": self.centre}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.centre.copy_(state["centre"])
