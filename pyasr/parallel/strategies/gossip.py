r"""Mixing with a few other ranks at a time, as given by a topology (`pyasr.parallel.topology.topologies`).

In round k, after local training, rank r computes x_r <- sum_s W_k[r, s] x_s. The consensus at the end of an
epoch, the mean over ranks, is the model. With `--all-reduce-epochs 1` the first epoch averages over all ranks
by an all-reduce, as Su's Kaldi has done since June 2015, because parameters change fast at first.

A rank waits only for the ranks that it receives from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.periodic import PeriodicStrategy, average
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import AveragingOptions
from pyasr.parallel.topology.topologies import TOPOLOGIES, MixingTopology, Round

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GossipOptions(AveragingOptions):
    """Options of schemes with a topology."""

    all_reduce_epochs: int = option(
        0,
        "number of first epochs in which each rank averages with all others instead of by the topology",
        minimum=0,
        rare=True,
    )


class Gossip(PeriodicStrategy):
    """Mixes by the rounds of `topology`."""

    options_kind = GossipOptions
    options: GossipOptions
    topology: MixingTopology

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self._gossip = Gossiper(self.codec)
        self._next_round()  # raises UserError for unsupported numbers of ranks

    @property
    def mixes_equal(self) -> bool:
        """Whether this is one of the `--all-reduce-epochs`."""
        return self.epoch < self.options.all_reduce_epochs

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """One round of the topology, or the mean of all ranks; both ignore `shares`."""
        if self.mixes_equal:
            average(self.codec, master, np.ones(self.comm.size))
        else:
            self.codec.host.change(master, lambda array: self._gossip(array, self._next_round()))

    def wait(self) -> None:
        """Wait for all ranks if all average, else for a byte from each rank that sends to this one."""
        if self.mixes_equal:
            super().wait()
            return
        for to, source, _ in messages(self._next_round(), self.comm.rank):
            self.comm.exchange(np.zeros(1, np.uint8), to, np.zeros(1, np.uint8), source)

    def _next_round(self) -> Round:
        return self.topology.round(self.comm.size, self.round)


class Gossiper:
    """Mixes parameters over ranks. Reuses its buffers, because the allocation of new pages
    takes longer than a copy."""

    def __init__(self, codec: PayloadCodec):
        self._codec = codec
        self._outgoing: torch.Tensor | None = None
        self._incoming: torch.Tensor | None = None

    def __call__(self, array: torch.Tensor, mixing: Round) -> torch.Tensor:
        """Replace `array` (CPU) by its mixture of this round and return it."""
        round_messages = messages(mixing, self._codec.comm.rank)
        if self._outgoing is None or self._outgoing.shape != array.shape:
            self._outgoing, self._incoming = array.new_empty(array.shape), array.new_empty(array.shape)
        self._codec.prepare(self._outgoing.copy_(array))
        array.mul_(1 - sum(weight for _, _, weight in round_messages))
        for to, source, weight in round_messages:
            array.add_(self._codec.exchange(to, self._incoming, source), alpha=weight)
        return array


def messages(mixing: Round, rank: int) -> list[tuple[int, int, float]]:
    """(receiver, sender, weight) of each message of a rank, without messages to itself."""
    received = [
        (int(np.flatnonzero(sources == rank)[0]), int(sources[rank]), float(weights[rank]))
        for sources, weights in mixing.parts
    ]
    return [(to, source, weight) for to, source, weight in received if source != rank]


for _name, _topology in TOPOLOGIES.items():
    if _name != "complete":
        register(_name)(type(_name.title().replace("-", ""), (Gossip,), {"topology": _topology}))
