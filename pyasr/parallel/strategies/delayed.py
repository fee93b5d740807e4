r"""Mixings that run while the ranks train on: delayed averaging, D1D and D-PSGD.

References: W. Zhang, X. Cui, et al. (IBM), arXiv:1904.04956, arXiv:2002.01119 and arXiv:2110.11199 (D-PSGD with fixed and random rings, D1D:
delay by one).

What a rank had at mixing k, x_k, is mixed in the background; at mixing k + 1 the rank, which has moved to x' meanwhile, takes

    x_(k+1) = h_k + (x' - x_k),        h_k = sum_s W_k[r, s] x_k of rank s

and sends that. With a mixing after every minibatch the gradient was taken at x_k and is applied to the mixture of the x_k: one step stale,
exactly. W = 11'/P gives D1D, sparse W D-PSGD. The ranks stay apart by their own last moves; the last mixing of an epoch makes them equal.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.parallel.strategies.base import register
from pyasr.parallel.strategies.gossip import gossip
from pyasr.parallel.strategies.periodic import PeriodicStrategy
from pyasr.parallel.topologies import TOPOLOGIES, Topology


class Pending:
    """A mixing on its way: what was sent, and what comes of it."""

    def __init__(self, sent: torch.Tensor, mixed: torch.Tensor, task=None):
        self.sent, self.mixed, self.task = sent, mixed, task

    def finish(self) -> None:
        """Wait until it is there."""
        if self.task is not None:
            self.task.join()
            self.task = None

    def apply(self, master: torch.Tensor) -> None:
        """x <- h + (x - x_sent)."""
        self.finish()
        master.add_(self.mixed.to(master.device) - self.sent)


class Delayed(PeriodicStrategy):
    """Mixes by a subclass' `mix_copy` in the background."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.pending: Pending | None = None
        self.wire = comm.split(0)  # messages of the background do not meet those of the loop

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """Replace `array` (CPU) by its mixture of round `number`; called in the background."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the mixing on its way."""
        if self.pending is not None:
            self.pending.finish()

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Take what has come, send what is here now."""
        self._take(master)
        if not last:
            sent = master.clone()
            mixed, number = sent.to("cpu", copy=True), self.round
            self.pending = Pending(sent, mixed, self.wire.background(lambda: self.mix_copy(mixed, number)))

    def consensus(self, master: torch.Tensor) -> None:
        """The mean, of parameters with nothing on its way."""
        self._take(master)
        super().consensus(master)

    def adopt(self, master: torch.Tensor) -> None:
        """Forget what is on its way."""
        self.wait()
        self.pending = None

    def _take(self, master: torch.Tensor) -> None:
        if self.pending is not None:
            self.pending.apply(master)
            self.pending = None

    def state_dict(self) -> dict:
        """What has been sent belongs to it, and what comes of that."""
        self.wait()
        pending = self.pending and {"sent": self.pending.sent, "mixed": self.pending.mixed}
        return {**super().state_dict(), "pending": pending}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        super().load_state_dict(state)
        self.pending = state["pending"] and Pending(**state["pending"])


@register("delayed")
class DelayedAveraging(Delayed):
    """Averages over all ranks, `period_frames` late."""

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """The mean."""
        self.wire.allreduce(array, "mean")


@register("d1d")
class DelayedByOne(DelayedAveraging):
    """Averages over all ranks after every minibatch, one late."""

    def period(self) -> int:
        """One minibatch."""
        return 1


@register("dpsgd")
class DPsgd(Delayed):
    """Mixes by `--topology` after every minibatch, one late."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.topology.round(comm.size, 0)  # refuses numbers of ranks that the topology does not take

    @property
    def topology(self) -> Topology:
        """The one that `--topology` names."""
        if self.options.topology not in TOPOLOGIES:
            raise UserError(f"--topology '{self.options.topology}': there is no such topology; choose one of {', '.join(TOPOLOGIES)}")
        return TOPOLOGIES[self.options.topology]

    def period(self) -> int:
        """One minibatch."""
        return 1

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """One round."""
        gossip(self.wire, array, self.topology.round(self.comm.size, number))
