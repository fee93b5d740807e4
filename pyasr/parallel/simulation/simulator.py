"""Ranks in simulated time: the duration of a training scheme on a hypothetical network, with up to hundreds
of learners.

    def learner(comm):
        # real computation takes no virtual time; `sleep` simulates its duration
        gradient = np.random.default_rng(comm.rank).normal(size=1000)
        comm.sleep(ComputeTime(0.07, variation=0.1).sample(comm.rng, comm.rank))
        comm.allreduce(gradient)
        return comm.time()

    seconds = run_simulated(64, learner, ClusterNetwork(latency_s=50e-6, bandwidth=1.25e9, ranks_per_host=4))

Virtual time passes in `sleep` and while ranks wait for each other and for the network, whose costs are in
`network`. Messages have their real content, so real training can be simulated. Ranks share a process: they
must draw from their own random streams (`comm.rng`).
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import EXCHANGE_TAG, BaseComm, Comm
from pyasr.parallel.communication.rank_threads import REDUCE
from pyasr.parallel.simulation.network_model import ClusterNetwork, Link, Traffic
from pyasr.parallel.simulation.virtual_time import Deadlock, VirtualClock, VirtualCondition, VirtualThread

__all__ = ["ComputeTime", "Deadlock", "ClusterNetwork", "SimComm", "run_simulated"]


@dataclass(frozen=True)
class ComputeTime:
    """Computation time of a minibatch: lognormal with this mean and coefficient of variation, times the
    rank's factor.

    factors   factors of individual ranks: {3: 10.0} makes rank 3 ten times as slow
    """

    mean_s: float
    variation: float = 0.0
    factors: dict[int, float] = field(default_factory=dict)

    def __post_init__(self):
        if not (
            0 <= self.mean_s < math.inf
            and 0 <= self.variation < math.inf
            and all(0 < f < math.inf for f in self.factors.values())
        ):
            raise UserError(f"{self}: mean and variation must be 0 or more, factors greater than 0")

    def sample(self, rng: np.random.Generator, rank: int = 0) -> float:
        """Seconds of one minibatch. If ln x has variance s^2 = ln(1 + c^2), x has the coefficient of
        variation c."""
        variance = math.log1p(self.variation**2)
        return (
            self.mean_s
            * self.factors.get(rank, 1.0)
            * math.exp(math.sqrt(variance) * rng.standard_normal() - variance / 2)
        )


class _Collective:
    """One call of a collective: values of the ranks that have called it, waiting ranks, and the result."""

    def __init__(self):
        self.kind, self.values, self.waiting, self.result = "", {}, deque(), None


class _World:
    """State shared by all ranks of a run."""

    def __init__(self, network: ClusterNetwork, limit_s: float):
        self.clock, self.network = VirtualClock(limit_s), network
        self.traffic = Traffic(self.clock, network)


class _Group:
    """Ranks that communicate; `ranks` are their numbers in the whole run."""

    def __init__(self, world: _World, ranks: list[int]):
        self.world, self.ranks = world, ranks
        self.wire: Link = world.network.wire(ranks)
        self.collective = _Collective()
        # (receiver, tag): (sender, bytes), the oldest first
        self.mail: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}
        self.receiving: dict[tuple[int, int], deque[VirtualThread]] = {}

    def deliver(self, receiver: int, tag: int, sender: int, message: np.ndarray) -> None:
        """Store a message that has arrived, and wake its receiver."""
        self.mail.setdefault((receiver, tag), []).append((sender, message))
        self.world.clock.wake(self.receiving.pop((receiver, tag), deque()))

    def find(self, receiver: int, tag: int, source: int | None) -> int | None:
        """Index of the oldest message from `source` (None: any rank) that has arrived."""
        mail = self.mail.get((receiver, tag), ())
        return next((i for i, (sender, _) in enumerate(mail) if source in (None, sender)), None)

    def take(self, receiver: int, tag: int, place: int) -> tuple[int, np.ndarray]:
        """A message and its sender. The entry of an empty tag is removed, because there may be as many tags
        as messages."""
        mail = self.mail[receiver, tag]
        taken = mail.pop(place)
        if not mail:
            del self.mail[receiver, tag]
        return taken

    def missing(self) -> str:
        """The ranks that have not called the collective."""
        return ", ".join(str(rank) for i, rank in enumerate(self.ranks) if i not in self.collective.values)


class SimComm(BaseComm):
    """A rank in simulated time, see `run_simulated`. Sums are taken in rank order.

    The sender of a message continues when the last byte has left its link; `exchange` also waits for the
    received message. The times of collectives are in the module `network`.

    rng   this rank's random stream
    """

    def __init__(self, rank: int, group: _Group, rng: np.random.Generator, numbers: itertools.count):
        self.rank, self.size, self.rng = rank, len(group.ranks), rng
        self._group, self._clock, self._numbers = group, group.world.clock, numbers

    def _collective(self, kind: str, value, combine: Callable[[list], tuple[Any, float]]):
        """Call a collective: `combine` converts the values of all ranks to (the result for all ranks,
        seconds).

        Raises RuntimeError when ranks call different collectives.
        """
        collective = self._group.collective
        self._enter(collective, kind, value)
        if len(collective.values) < self.size:
            self._clock.wait(
                collective.waiting,
                lambda: f"{collective.kind}, which these ranks have not called: {self._group.missing()}",
            )
            return collective.result
        self._group.collective = _Collective()
        collective.result, seconds = combine([collective.values[rank] for rank in range(self.size)])
        end = self._clock.now + seconds
        self._clock.wake(collective.waiting, at=end)
        self._clock.sleep_until(end)
        return collective.result

    def _enter(self, collective: _Collective, kind: str, value) -> None:
        if collective.values and kind != collective.kind:
            first = self._group.ranks[next(iter(collective.values))]
            raise RuntimeError(
                f"rank {self._world_rank} calls {kind} while rank {first} is in {collective.kind}"
            )
        if self.rank in collective.values:
            raise RuntimeError(f"rank {self._world_rank} calls {kind} in two threads at once")
        collective.kind, collective.values[self.rank] = kind, value

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        def combine(buffers: list[np.ndarray]):
            total = buffers[0].copy()
            for other in buffers[1:]:
                REDUCE[op](total, other, out=total)
            return total, self._group.wire.allreduce_s(self.size, total.nbytes)

        buffer[...] = self._collective(
            f"allreduce ({op}) of {buffer.size} {buffer.dtype.name}", buffer, combine
        )

    def _bcast_bytes(self, raw: np.ndarray, root: int) -> None:
        sent = self._collective(
            f"bcast of {raw.size} bytes from {root}",
            raw,
            lambda all_raw: (all_raw[root].copy(), self._spread_s(raw.size)),
        )
        if self.rank != root:
            raw[...] = sent

    def allgather(self, value):
        def combine(pickles: list[bytes]):
            sizes = [len(p) for p in pickles]
            return pickles, self._spread_s(sum(sizes) - min(sizes))

        return [
            pickle.loads(p) for p in self._collective("a collective of objects", pickle.dumps(value), combine)
        ]

    def barrier(self) -> None:
        self._collective("barrier", None, lambda values: (None, self._spread_s()))

    def split(self, colour: int) -> Comm:
        """As `Comm.split`."""

        def combine(colours: list[int]):
            members = {c: [i for i, other in enumerate(colours) if other == c] for c in colours}
            groups = {
                c: _Group(self._group.world, [self._group.ranks[i] for i in members[c]]) for c in members
            }
            return [(members[c].index(i), groups[c]) for i, c in enumerate(colours)], self._spread_s()

        rank, group = self._collective("split", colour, combine)[self.rank]
        return SimComm(rank, group, self.rng, self._numbers)

    def split_by_host(self) -> Comm:
        return self.split(self._group.world.network.host(self._world_rank))

    def _exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> None:
        sent = self._post(outgoing, to, EXCHANGE_TAG)
        self._receive_bytes(incoming, EXCHANGE_TAG, source)
        if sent > self._clock.now:
            self._clock.sleep_until(sent)

    def _send_bytes(self, raw: np.ndarray, to: int, tag: int) -> None:
        self._clock.sleep_until(self._post(raw, to, tag))

    def _post(self, raw: np.ndarray, to: int, tag: int) -> float:
        """Send a message; returns the time at which it will have left."""
        if not 0 <= to < self.size:
            raise ValueError(
                f"rank {self._world_rank} sends to rank {to}, but its group has only {self.size} ranks"
            )
        arrived = partial(self._group.deliver, to, tag, self.rank, raw.copy())
        return self._group.world.traffic.carry(raw.size, self._world_rank, self._group.ranks[to], arrived)

    def _receive_bytes(self, raw: np.ndarray, tag: int, source: int | None) -> int:
        group, key = self._group, (self.rank, tag)
        while (place := group.find(*key, source)) is None:
            self._clock.wait(
                group.receiving.setdefault(key, deque()), lambda: self._describe_message(tag, source)
            )
        sender, message = group.take(*key, place)
        if len(message) != len(raw):
            raise ValueError(
                f"rank {self._world_rank} receives {len(message)} bytes from rank {group.ranks[sender]} with "
                f"tag {tag}, but expects {len(raw)}"
            )
        raw[...] = message
        return sender

    def probe(self, tag: int) -> int | None:
        self._clock.poll()
        place = self._group.find(self.rank, tag, None)
        return None if place is None else self._group.mail[self.rank, tag][place][0]

    def background(self, function: Callable[[], Any]) -> VirtualThread:
        return self._clock.start(f"thread {next(self._numbers)} of rank {self._world_rank}", function)

    def condition(self) -> VirtualCondition:
        return VirtualCondition(self._clock)

    def time(self) -> float:
        return self._clock.poll()

    def sleep(self, seconds: float) -> None:
        if not 0 <= seconds < math.inf:
            raise ValueError(f"rank {self._world_rank} cannot sleep for {seconds} s")
        self._clock.sleep_until(self._clock.now + seconds)

    @property
    def name(self) -> str:
        """`rank 1 of 4 on simulated host 0`, for messages."""
        return (
            f"rank {self.rank} of {self.size} on simulated host "
            f"{self._group.world.network.host(self._world_rank)}"
        )

    @property
    def _world_rank(self) -> int:
        return self._group.ranks[self.rank]

    def _spread_s(self, num_bytes: int = 0) -> float:
        return self._group.wire.spread_s(self.size, num_bytes)

    def _describe_message(self, tag: int, source: int | None) -> str:
        return (
            f"a message with tag {tag} from "
            f"{'any rank' if source is None else f'rank {self._group.ranks[source]}'}"
        )


def run_simulated(
    num_ranks: int,
    function: Callable[[SimComm], Any],
    network: ClusterNetwork,
    seed: int = 0,
    limit_s: float = math.inf,
) -> list:
    """Call `function(comm)` on `num_ranks` ranks in simulated time; returns the results in rank order, the
    same in every run.

    A rank's random stream comes from `seed`. If a rank raises, all others are ended and its exception is
    raised here. A rank's background threads end when all ranks have returned; their exceptions are raised in
    `join` and `check`. Raises Deadlock, with what each thread waits for, if all threads wait, and
    TimeoutError after `limit_s` seconds of simulated time.
    """
    if num_ranks < 1:
        raise ValueError(f"cannot simulate {num_ranks} ranks")
    world = _World(network, limit_s)
    group = _Group(world, list(range(num_ranks)))
    comms = [
        SimComm(rank, group, generator(seed, "simulated rank", rank), itertools.count(1))
        for rank in range(num_ranks)
    ]
    return world.clock.run({f"rank {comm.rank}": partial(function, comm) for comm in comms})
