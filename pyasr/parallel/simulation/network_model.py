r"""Network model with latency, bandwidth and hosts, for simulated ranks.

A message of b bytes from one rank to another

    starts when the sender's outgoing link is free, and occupies it for b / bandwidth; then the sender
      continues,
    reaches the receiver's incoming link `latency` after its start, waits there until that is free, and
      occupies it for b / bandwidth,
    arrives at the end of that: on an idle network, latency + b / bandwidth after its start.

Links are first come, first served, full duplex, with unlimited buffers between them. A message of `packet`
bytes or fewer overtakes waiting messages, as packets of several messages alternate in real networks: it waits
only for earlier messages from the same rank to the same rank, and occupies no link. The links of a host are
shared by all its ranks. Ranks of one host, and a rank that sends to itself, use links of their own, one per
rank and direction, with the `intra_host` latency and bandwidth.

Collectives have costs in closed form (Thakur, Rabenseifner, Gropp, "Optimization of collective communication
operations in MPICH", 2005), counted from the arrival of the last rank, and do not compete with messages. For
P ranks, with the latency and bandwidth between hosts unless all ranks are on one host:

    allreduce of b bytes        2 (P - 1) (latency + b / (P bandwidth))                 ring
    bcast of b bytes            ceil(log2 P) latency + b / bandwidth                    pipelined tree
    allgather of b_1 ... b_P    ceil(log2 P) latency + (sum b - min b) / bandwidth      recursive doubling
    barrier, split              ceil(log2 P) latency                                    dissemination
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pyasr.base.errors import UserError
from pyasr.parallel.simulation.virtual_time import VirtualClock


class Link(NamedTuple):
    """Latency in seconds and bandwidth in bytes per second between two ranks, and the costs of collectives
    over such connections."""

    latency_s: float
    bandwidth: float

    def allreduce_s(self, num_ranks: int, num_bytes: int) -> float:
        """Seconds of a ring all-reduce."""
        return 2 * (num_ranks - 1) * (self.latency_s + num_bytes / (num_ranks * self.bandwidth))

    def spread_s(self, num_ranks: int, num_bytes: int = 0) -> float:
        """Seconds until this many bytes have reached every rank; with 0 bytes, of a barrier."""
        return (num_ranks - 1).bit_length() * self.latency_s + num_bytes / self.bandwidth


@dataclass(frozen=True)
class ClusterNetwork:
    """Hosts with `ranks_per_host` consecutive ranks each, and the network between them. Latencies in s,
    bandwidths in bytes/s, `packet` in bytes.

    Raises UserError for impossible values.
    """

    latency_s: float
    bandwidth: float
    ranks_per_host: int = 1
    intra_host_latency_s: float = 1e-6
    intra_host_bandwidth: float = 5e9
    packet: int = 0

    def __post_init__(self):
        for name, unit in (
            ("latency_s", "seconds"),
            ("intra_host_latency_s", "seconds"),
            ("packet", "bytes"),
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"network: {name} is {getattr(self, name)}; it must be 0 or more {unit}")
        for name in ("bandwidth", "intra_host_bandwidth", "ranks_per_host"):
            if not getattr(self, name) > 0:
                raise UserError(f"network: {name} is {getattr(self, name)}; it must be greater than 0")

    def host(self, rank: int) -> int:
        """The host of a rank."""
        return rank // self.ranks_per_host

    def wire(self, ranks) -> Link:
        """The connection between these ranks, the slowest if there are several."""
        if len({self.host(rank) for rank in ranks}) == 1:
            return Link(self.intra_host_latency_s, self.intra_host_bandwidth)
        return Link(self.latency_s, self.bandwidth)


class Traffic:
    """The messages in flight."""

    def __init__(self, clock: VirtualClock, network: ClusterNetwork):
        self.network, self._clock = network, clock
        # time at which a link has served all its messages
        self._free_at: dict[tuple, float] = defaultdict(float)
        # messages from one rank to another, without those of a single packet
        self._on_way: Counter[tuple[int, int]] = Counter()

    def carry(self, num_bytes: int, source: int, target: int, arrived: Callable[[], None]) -> float:
        """Send a message now; calls `arrived` on its arrival. Returns when the sender may continue."""
        wire, way = self.network.wire((source, target)), (source, target)
        seconds, waits = num_bytes / wire.bandwidth, num_bytes > self.network.packet or self._on_way[way] > 0
        links = self._links(source, target) if waits else (None, None)
        self._on_way[way] += waits

        def arrive() -> None:
            self._on_way[way] -= waits
            arrived()

        begin = self._occupy(links[0], seconds)
        self._clock.call_at(
            begin + wire.latency_s,
            lambda: self._clock.call_at(self._occupy(links[1], seconds) + seconds, arrive),
        )
        return begin + seconds

    def _links(self, source: int, target: int) -> tuple[tuple, tuple]:
        hosts = self.network.host(source), self.network.host(target)
        if hosts[0] == hosts[1]:
            return ("from rank", source), ("to rank", target)
        return ("from host", hosts[0]), ("to host", hosts[1])

    def _occupy(self, link: tuple | None, seconds: float) -> float:
        """Reserve the link, if any, for `seconds` from the time at which it is free; returns that time."""
        if link is None:
            return self._clock.now
        begin = max(self._clock.now, self._free_at[link])
        self._free_at[link] = begin + seconds
        return begin
