r"""Mixings that run while the ranks train on: delayed averaging, D1D and D-PSGD.

References: W. Zhang, X. Cui, et al. (IBM), arXiv:1904.04956, arXiv:2002.01119 and arXiv:2110.11199 (D-PSGD with fixed and random rings,
D1D: delay by one).

What a rank had at mixing k, x_k, is mixed in the background; at mixing k + 1 the rank, which has moved to x' meanwhile, takes

    x_(k+1) = h_k + (x' - x_k),        h_k = sum_s W_k[r, s] x_k of rank s

and sends that. With a mixing after every minibatch the gradient was taken at x_k and is applied to the mixture of the x_k: one step stale,
exactly. W = 11'/P gives D1D, sparse W D-PSGD. The ranks stay apart by their own last moves; the last mixing of an epoch makes them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.strategies.gossip import Gossiper
from pyasr.parallel.strategies.options import FirstMixingOptions, TopologyOptions
from pyasr.parallel.strategies.periodic import PeriodicStrategy
from pyasr.parallel.strategies.register import register
from pyasr.parallel.topologies import TOPOLOGIES, Topology, topology_named

if TYPE_CHECKING:
    import torch

_USUAL_TOPOLOGY = "fixed-ring"


@dataclass(frozen=True)
class DPsgdOptions(TopologyOptions, FirstMixingOptions):
    """With whom ranks mix: on a fixed ring, unless another topology is given."""

    def __post_init__(self):
        object.__setattr__(self, "topology", self.topology or _USUAL_TOPOLOGY)

    @staticmethod
    def upgraded(content: dict) -> dict:
        """Saved options, with the topology that they left out."""
        return {"topology": _USUAL_TOPOLOGY} | content


class Pending:
    """A mixing on its way; `move` is h - x_sent (CPU) when it is there."""

    def __init__(self, move: torch.Tensor, task=None):
        self.move, self.task = move, task

    def finish(self) -> None:
        """Wait until it is there."""
        if self.task is not None:
            self.task.join()
            self.task = None

    def apply(self, master: torch.Tensor) -> None:
        """x <- x + (h - x_sent)."""
        self.finish()
        master.add_(self.move.to(master.device))


class Delayed(PeriodicStrategy):
    """Mixes by a subclass' `mix_copy` in the background.

    Memory is kept from one mixing to the next: to be given new pages costs more than to copy, and the loop would wait for it.
    """

    in_background = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.pending: Pending | None = None
        self._sent: torch.Tensor | None = None
        self._mixed: torch.Tensor | None = None

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
            self._send(master, self.round)

    def _send(self, master: torch.Tensor, number: int) -> None:
        if self._sent is None or self._sent.shape != master.shape:
            memory = dict(device="cpu", pin_memory=master.is_cuda)
            self._sent, self._mixed = (master.new_empty(master.shape, **memory) for _ in range(2))
        self._sent.copy_(master)
        self.pending = Pending(self._mixed, self.comm.background(lambda: self._mix_sent(number)))

    def _mix_sent(self, number: int) -> None:
        """The work of the background: what the loop will have to add."""
        self._mixed.copy_(self._sent)
        self.mix_copy(self._mixed, number)
        self._mixed.sub_(self._sent)

    def consensus(self, master: torch.Tensor) -> None:
        """The mean, of parameters with nothing on its way."""
        self._take(master)
        super().consensus(master)

    def model(self, master: torch.Tensor) -> torch.Tensor:
        """The same of a copy; what is on its way stays so."""
        pending = self.pending
        copy = super().model(master)
        self.pending = pending
        return copy

    def adopt(self, master: torch.Tensor) -> None:
        """Forget what is on its way."""
        self.wait()
        self.pending = None
        super().adopt(master)

    def _take(self, master: torch.Tensor) -> None:
        if self.pending is not None:
            self.pending.apply(master)
            self.pending = None

    def state_dict(self) -> dict:
        """What comes of what has been sent belongs to it."""
        self.wait()
        pending = self.pending and {"move": self.pending.move}
        return {**super().state_dict(), "pending": pending}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        super().load_state_dict(state)
        self.pending = state["pending"] and Pending(**state["pending"])


@register("delayed")
class DelayedAveraging(Delayed):
    """Averages over all ranks, `period_frames` late."""

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """The mean, which all know."""
        self.wire.agree(self.wire.sum(array, 1.0, self.comm.size).div_(self.comm.size))


@register("d1d", options=FirstMixingOptions)
class DelayedByOne(DelayedAveraging):
    """Averages over all ranks after every minibatch, one late."""

    def period(self, epoch: int) -> int:
        """One minibatch."""
        return 1


@register("dpsgd", options=DPsgdOptions)
class DPsgd(DelayedByOne):
    """Mixes by `--topology` after every minibatch, one late; by the complete one as D1D does."""

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self._gossip = Gossiper(self.wire)
        self.topology.round(comm.size, 0)  # refuses numbers of ranks that the topology does not take

    @property
    def topology(self) -> Topology:
        """The one that `--topology` names."""
        return topology_named(self.options.topology)

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """One round."""
        if self.topology is TOPOLOGIES["complete"]:
            super().mix_copy(array, number)
        else:
            self._gossip(array, self.topology.round(self.comm.size, number))
