r"""Mixing in the background while the ranks continue to train: delayed averaging, D1D and D-PSGD.

References: W. Zhang, X. Cui, et al. (IBM), arXiv:1904.04956, arXiv:2002.01119 and arXiv:2110.11199 (D-PSGD
with fixed and random rings, D1D: delay by one).

The parameters x_k that a rank had at mixing k are mixed in the background. At mixing k + 1 the rank, which
has moved to x', takes

    x_(k+1) = h_k + (x' - x_k),        h_k = sum_s W_k[r, s] x_k of rank s

and sends x_(k+1). With a mixing after every minibatch, the gradient is computed at x_k and applied to the
mixture of the x_k: its staleness is exactly one step. W = 11'/P gives D1D, a sparse W gives D-PSGD. Ranks
differ by their own last moves; the last mixing of an epoch makes them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.periodic import PeriodicStrategy
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import FirstMixingOptions, SchemeOptions, TopologyOptions
from pyasr.parallel.strategies.gossip import Gossiper
from pyasr.parallel.topology.topologies import TOPOLOGIES, MixingTopology, topology_named

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm

_USUAL_TOPOLOGY = "fixed-ring"


@dataclass(frozen=True)
class DPsgdOptions(TopologyOptions, FirstMixingOptions):
    """Options of D-PSGD. The default topology is a fixed ring."""

    def __post_init__(self):
        object.__setattr__(self, "topology", self.topology or _USUAL_TOPOLOGY)

    @staticmethod
    def upgraded(content: dict) -> dict:
        """Saved options, completed by the default topology."""
        return {"topology": _USUAL_TOPOLOGY} | content


class Pending:
    """A mixing in progress; `move` is h - x_sent (CPU) once it has finished."""

    def __init__(self, move: torch.Tensor, task=None):
        self.move, self.task = move, task

    def finish(self) -> None:
        """Wait for the end of the mixing."""
        if self.task is not None:
            self.task.join()
            self.task = None

    def apply(self, master: torch.Tensor) -> None:
        """x <- x + (h - x_sent)."""
        self.finish()
        master.add_(self.move.to(master.device))


class Delayed(PeriodicStrategy):
    """Mixes with the subclass's `mix_copy` in the background.

    The buffers are reused, because the allocation of new pages takes longer than a copy, and the training
    loop would wait for it.
    """

    in_background = True

    def __init__(self, comm: Comm, options: SchemeOptions):
        super().__init__(comm, options)
        self.pending: Pending | None = None
        self._sent: torch.Tensor | None = None
        self._mixed: torch.Tensor | None = None

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """Replace `array` (CPU) by its mixture of round `number`; called in the background."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the mixing in progress."""
        if self.pending is not None:
            self.pending.finish()

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Apply the finished mixing, then send the present parameters."""
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
        """Background task: compute the difference that the training loop adds later."""
        sent, mixed = self._sent, self._mixed
        assert mixed is not None
        mixed.copy_(sent)
        self.mix_copy(mixed, number)
        mixed.sub_(sent)

    def consensus(self, master: torch.Tensor) -> None:
        """The mean of all ranks, after the mixing in progress has been applied."""
        self._take(master)
        super().consensus(master)

    def model(self, master: torch.Tensor) -> torch.Tensor:
        """The consensus as a copy; the mixing in progress stays pending."""
        pending = self.pending
        copy = super().model(master)
        self.pending = pending
        return copy

    def adopt(self, master: torch.Tensor) -> None:
        """Take over these parameters and discard the mixing in progress."""
        self.wait()
        self.pending = None
        super().adopt(master)

    def _take(self, master: torch.Tensor) -> None:
        if self.pending is not None:
            self.pending.apply(master)
            self.pending = None

    def state_dict(self) -> dict:
        """The base class's state and the result of the mixing in progress."""
        self.wait()
        pending = self.pending and {"move": self.pending.move}
        return {**super().state_dict(), "pending": pending}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.pending = state["pending"] and Pending(**state["pending"])


@register("delayed")
class DelayedAveraging(Delayed):
    """Averages over all ranks, with a delay of one period."""

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """The mean, which becomes the base of `wire`."""
        self.wire.agree(self.wire.sum(array, 1.0, self.comm.size).div_(self.comm.size))


@register("d1d", options=FirstMixingOptions)
class DelayedByOne(DelayedAveraging):
    """Averages over all ranks after every minibatch, with a delay of one minibatch."""

    def period(self, epoch: int) -> int:
        """One minibatch."""
        return 1


@register("dpsgd", options=DPsgdOptions)
class DPsgd(DelayedByOne):
    """Mixes by `--topology` after every minibatch, with a delay of one minibatch. The complete topology mixes
    as D1D does."""

    options: DPsgdOptions

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self._gossip = Gossiper(self.wire)
        self.topology.round(comm.size, 0)  # raises UserError for unsupported numbers of ranks

    @property
    def topology(self) -> MixingTopology:
        """The topology given by `--topology`."""
        assert self.options.topology is not None
        return topology_named(self.options.topology)

    def mix_copy(self, array: torch.Tensor, number: int) -> None:
        """Apply one round of the topology."""
        if self.topology is TOPOLOGIES["complete"]:
            super().mix_copy(array, number)
        else:
            self._gossip(array, self.topology.round(self.comm.size, number))
