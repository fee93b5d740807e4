r"""Ranks mix with a few others each time, as a topology says (`pyasr.parallel.topologies`), instead of all with all.

In round k rank r has x_r <- sum_s W_k[r, s] x_s after its local training. What ranks differ by at the end of an epoch is averaged away:
the consensus is the model. With `--all-reduce-epochs 1` the first epoch mixes all with all, by an all-reduce, as Su's Kaldi does since June
2015; early parameters move far.

A rank waits only for those that it receives from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.options import option
from pyasr.parallel.strategies.options import AveragingOptions
from pyasr.parallel.strategies.periodic import PeriodicStrategy, average
from pyasr.parallel.strategies.register import register
from pyasr.parallel.strategies.wire import Wire
from pyasr.parallel.topologies import TOPOLOGIES, Round, Topology

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GossipOptions(AveragingOptions):
    """When ranks mix by a topology."""

    all_reduce_epochs: int = option(0, "first epochs in which topologies are left aside and all ranks average with all", minimum=0)


class Gossip(PeriodicStrategy):
    """Mixes by the rounds of `topology`."""

    options_kind = GossipOptions
    topology: Topology

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self._gossip = Gossiper(self.wire)
        self._next_round()  # refuses numbers of ranks that the topology does not take

    @property
    def mixes_equal(self) -> bool:
        """In the epochs of `--all-reduce-epochs`."""
        return self.epoch < self.options.all_reduce_epochs

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """One round, or the mean of all; shares of frames do not matter to it."""
        if self.mixes_equal:
            average(self.wire, master, np.ones(self.comm.size))
        else:
            self.wire.host.change(master, lambda array: self._gossip(array, self._next_round()))

    def wait(self) -> None:
        """For all, where all average; else a byte from each that will send its parameters."""
        if self.mixes_equal:
            super().wait()
            return
        for to, source, _ in messages(self._next_round(), self.comm.rank):
            self.comm.exchange(np.zeros(1, np.uint8), to, np.zeros(1, np.uint8), source)

    def _next_round(self) -> Round:
        return self.topology.round(self.comm.size, self.round)


class Gossiper:
    """Mixes parameters over the ranks of a wire; keeps its memory, because to be given new pages costs more than to copy."""

    def __init__(self, wire: Wire):
        self._wire = wire
        self._outgoing: torch.Tensor | None = None
        self._incoming: torch.Tensor | None = None

    def __call__(self, array: torch.Tensor, mixing: Round) -> torch.Tensor:
        """Replace `array` (CPU) by its mixture of this round; returns it."""
        round_messages = messages(mixing, self._wire.comm.rank)
        if self._outgoing is None or self._outgoing.shape != array.shape:
            self._outgoing, self._incoming = array.new_empty(array.shape), array.new_empty(array.shape)
        self._wire.offer(self._outgoing.copy_(array))
        array.mul_(1 - sum(weight for _, _, weight in round_messages))
        for to, source, weight in round_messages:
            array.add_(self._wire.exchange(to, self._incoming, source), alpha=weight)
        return array


def messages(mixing: Round, rank: int) -> list[tuple[int, int, float]]:
    """(receiver, sender, weight) of each message of a rank; those to itself are left out."""
    told = [(int(np.flatnonzero(sources == rank)[0]), int(sources[rank]), float(weights[rank])) for sources, weights in mixing.parts]
    return [(to, source, weight) for to, source, weight in told if source != rank]


for _name, _topology in TOPOLOGIES.items():
    if _name != "complete":
        register(_name)(type(_name.title().replace("-", ""), (Gossip,), {"topology": _topology}))
