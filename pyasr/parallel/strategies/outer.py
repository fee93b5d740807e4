r"""An outer optimiser on top of averaging, which uses the move of the average over a block of training as a
gradient.

With w the outer parameters, x the parameters from which all ranks began a block of training, xbar their
average after it, G = xbar - x, eta the outer momentum, zeta the outer rate, and the momentum buffer D or B:

    bmuf-classical  D <- eta D + zeta G,   w <- w + D
                    ranks continue from w
    bmuf            the same
                    ranks continue from w + eta D (Nesterov)
    slowmo          D <- eta (gamma / gamma_before) D + G,  w <- w + zeta D
                    gamma: the learning rate in the block; ranks continue from w
    diloco          B <- eta B + G,        w <- w + zeta (G + eta B)
                    ranks continue from w (SGD with Nesterov momentum)

References: K. Chen, Q. Huo, ICASSP 2016 (BMUF; equations as in arXiv:1703.05880 and arXiv:1904.10584); J.
Wang et al., arXiv:1910.00643 (SlowMo; its u is -D / gamma); A. Douillard et al., arXiv:2311.08105 (DiLoCo).

Defaults: bmuf eta = 1 - 1/P, zeta = 1; slowmo eta = 0.5, zeta = 1; diloco eta = 0.9, zeta = 0.7. Ranks reset
their own momentum after each block of BMUF. At the end of an epoch the ranks have w, the model; the next
block begins there.

In all of these schemes, a steady move of the average is eventually applied to w zeta / (1 - eta) times. Other
schemes compensate for the factor 1/P of averaging by a learning rate that grows with P (`--lr-scaling`).
Here, the rate grows with P (1 - eta) / zeta instead, at least 1: not at all in BMUF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.parallel.mixing.base import Mixing
from pyasr.parallel.mixing.periodic import PeriodicStrategy, average
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import PeriodicOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OuterOptions(PeriodicOptions):
    """Options of an outer optimiser."""

    outer_momentum: float | None = option(
        None,
        "momentum of the outer optimiser; none: the scheme's own (docs/parallel.md)",
        minimum=0.0,
        maximum=0.999,
        rare=True,
    )
    outer_rate: float | None = option(
        None, "learning rate of the outer optimiser; none: the scheme's own", minimum=0.0, rare=True
    )


class OuterOptimiser(PeriodicStrategy):
    """Averages, then updates the outer parameters with `advance`.

    outer  w
    begun  x
    moved  D or B
    """

    mixes_equal = True
    options_kind = OuterOptions
    default_momentum, default_rate = 0.0, 1.0

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.eta = self.default_momentum if options.outer_momentum is None else options.outer_momentum
        self.zeta = self.default_rate if options.outer_rate is None else options.outer_rate
        amplification = self.zeta / (1 - self.eta)
        self.num_averaged = max(comm.size / amplification, 1.0) if amplification > 0 else comm.size

    def adopt(self, master: torch.Tensor) -> None:
        """Start with these parameters as the outer parameters, with zero momentum."""
        super().adopt(master)
        self.outer, self.begun, self.moved = master.clone(), master.clone(), master.new_zeros(master.shape)

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Average, then move the outer parameters as the scheme does."""
        average(self.wire, master, shares)
        self.advance(master.sub_(self.begun))
        master.copy_(self.outer)
        if not last:
            self.look_ahead(master)
        self.begun.copy_(master)

    def advance(self, g: torch.Tensor) -> None:
        """Update `outer` and `moved` by G."""
        self.moved.mul_(self.eta).add_(g, alpha=self.zeta)
        self.outer.add_(self.moved)

    def look_ahead(self, master: torch.Tensor) -> None:
        """Change `master` from w to the start of the next block."""

    def state_dict(self) -> dict:
        """The outer parameters and their momentum."""
        return {**super().state_dict(), "outer": self.outer, "begun": self.begun, "moved": self.moved}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        for name in ("outer", "begun", "moved"):
            getattr(self, name).copy_(state[name])

    def resume_resized(self, state: dict) -> None:
        """Restore the momentum, which is the same on all ranks; they begin with the outer parameters."""
        super().resume_resized(state)
        self.moved.copy_(state["moved"])


@register("bmuf-classical")
class Bmuf(OuterOptimiser):
    """Blockwise model update filtering, classical block momentum."""

    resets_momentum = True

    def __init__(self, comm, options):
        self.default_momentum = 1 - 1 / comm.size
        super().__init__(comm, options)


@register("bmuf")
class NesterovBmuf(Bmuf):
    """BMUF with Nesterov block momentum. The model is w; within an epoch, ranks differ from it."""

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Mix as all outer optimisers do; parameters equal the model at the end of an epoch only."""
        mixing = super().step(master, frames)
        return mixing and mixing._replace(equal=mixing.last or self.comm.size == 1)

    def consensus(self, master: torch.Tensor) -> None:
        """w."""
        if self.comm.size > 1:
            master.copy_(self.outer)

    def look_ahead(self, master: torch.Tensor) -> None:
        """w + eta D."""
        master.add_(self.moved, alpha=self.eta)


@register("slowmo")
class SlowMo(OuterOptimiser):
    """Slow momentum."""

    default_momentum = 0.5

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.rate_before = 0.0

    def advance(self, g: torch.Tensor) -> None:
        """Update by G. D is in units of parameters, so it is scaled by the change of the learning rate."""
        rate = self.training.rate
        self.moved.mul_(self.eta * (rate / self.rate_before if self.rate_before else 1.0)).add_(g)
        self.outer.add_(self.moved, alpha=self.zeta)
        self.rate_before = rate

    def state_dict(self) -> dict:
        """The base class's state and the learning rate."""
        return {**super().state_dict(), "rate_before": self.rate_before}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.rate_before = state["rate_before"]


@register("diloco")
class DiLoCo(OuterOptimiser):
    """Nesterov SGD on the average's moves."""

    default_momentum, default_rate = 0.9, 0.7

    def advance(self, g: torch.Tensor) -> None:
        """B <- eta B + G;  w <- w + zeta (G + eta B)."""
        self.moved.mul_(self.eta).add_(g)
        self.outer.add_(g, alpha=self.zeta).add_(self.moved, alpha=self.zeta * self.eta)
