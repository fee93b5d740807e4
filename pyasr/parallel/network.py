r"""What a network costs: a model with latency, bandwidth and hosts, for simulated ranks.

A message of b bytes from one rank to another

    begins when the sender's outgoing link is free, and occupies it for b / bandwidth; then the sender goes on,
    reaches the receiver's incoming link `latency` after its beginning, waits there until that is free, and occupies it for b / bandwidth,
    has arrived at the end of that: on an idle network, latency + b / bandwidth after its beginning.

Links serve whoever comes first, one message after the other; they work in both directions at once, and there is room between them for
any number of messages. A message of `packet` bytes or fewer passes between those that wait, as networks take turns at packets: it waits for
nobody but earlier messages from the same rank to the same rank, and occupies no link. Between hosts a host's links are those of all its
ranks. Ranks of one host talk over links of their own, one in each direction a rank, whose latency and bandwidth are the `intra_host` ones;
so does a rank with itself.

Collectives have costs in closed form (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005),
from the last rank's coming on, and compete with no message. For P ranks, with the latency and bandwidth between hosts unless all of
them are on one host:

    allreduce of b bytes        2 (P - 1) (latency + b / (P bandwidth))                 ring
    bcast of b bytes            ceil(log2 P) latency + b / bandwidth                    pipelined tree
    allgather of b_1 ... b_P    ceil(log2 P) latency + (sum b - min b) / bandwidth      recursive doubling
    barrier, split              ceil(log2 P) latency                                    dissemination
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Callable, NamedTuple

from pyasr.base.errors import UserError
from pyasr.parallel.virtual_time import Clock


class Wire(NamedTuple):
    """Latency in seconds and bandwidth in bytes per second of the way between two ranks, and what collectives over such ways take."""

    latency_s: float
    bandwidth: float

    def allreduce_s(self, num_ranks: int, num_bytes: int) -> float:
        """Seconds of a ring all-reduce."""
        return 2 * (num_ranks - 1) * (self.latency_s + num_bytes / (num_ranks * self.bandwidth))

    def spread_s(self, num_ranks: int, num_bytes: int = 0) -> float:
        """Seconds until this many bytes have come to every rank; without any, of a barrier."""
        return (num_ranks - 1).bit_length() * self.latency_s + num_bytes / self.bandwidth


@dataclass(frozen=True)
class Network:
    """Hosts with `ranks_per_host` ranks each, the lowest on the first, and the network between them; latencies in s, bandwidths in bytes/s,
    `packet` in bytes.

    Raises UserError for values that no network has.
    """

    latency_s: float
    bandwidth: float
    ranks_per_host: int = 1
    intra_host_latency_s: float = 1e-6
    intra_host_bandwidth: float = 5e9
    packet: int = 0

    def __post_init__(self):
        for name, unit in (("latency_s", "seconds"), ("intra_host_latency_s", "seconds"), ("packet", "bytes")):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"network: {name} is {getattr(self, name)}; it must be 0 or more {unit}")
        for name in ("bandwidth", "intra_host_bandwidth", "ranks_per_host"):
            if not getattr(self, name) > 0:
                raise UserError(f"network: {name} is {getattr(self, name)}; it must be greater than 0")

    def host(self, rank: int) -> int:
        """The host of a rank."""
        return rank // self.ranks_per_host

    def wire(self, ranks) -> Wire:
        """The way between these ranks, the worst if there are several."""
        if len({self.host(rank) for rank in ranks}) == 1:
            return Wire(self.intra_host_latency_s, self.intra_host_bandwidth)
        return Wire(self.latency_s, self.bandwidth)


class Traffic:
    """The messages on their way through a network."""

    def __init__(self, clock: Clock, network: Network):
        self.network, self._clock = network, clock
        self._free_at: dict[tuple, float] = defaultdict(float)  # a link: when it has served all who have come
        self._on_way: Counter[tuple[int, int]] = Counter()  # messages from one rank to another, but those of a packet that pass

    def carry(self, num_bytes: int, source: int, target: int, arrived: Callable[[], None]) -> float:
        """Send a message from now on; calls `arrived` when it has arrived, and returns the time when the sender is free of it."""
        wire, way = self.network.wire((source, target)), (source, target)
        seconds, waits = num_bytes / wire.bandwidth, num_bytes > self.network.packet or self._on_way[way] > 0
        links = self._links(source, target) if waits else (None, None)
        self._on_way[way] += waits

        def arrive() -> None:
            self._on_way[way] -= waits
            arrived()

        begin = self._occupy(links[0], seconds)
        self._clock.call_at(begin + wire.latency_s, lambda: self._clock.call_at(self._occupy(links[1], seconds) + seconds, arrive))
        return begin + seconds

    def _links(self, source: int, target: int) -> tuple[tuple, tuple]:
        hosts = self.network.host(source), self.network.host(target)
        if hosts[0] == hosts[1]:
            return ("from rank", source), ("to rank", target)
        return ("from host", hosts[0]), ("to host", hosts[1])

    def _occupy(self, link: tuple | None, seconds: float) -> float:
        """Take the link, if there is one, for so long as soon as it is free; the time when it is."""
        if link is None:
            return self._clock.now
        begin = max(self._clock.now, self._free_at[link])
        self._free_at[link] = begin + seconds
        return begin
