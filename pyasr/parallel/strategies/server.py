r"""Asynchronous SGD with a parameter server.

References: W. Chan, "Distributed Optimization of CNNs and RNNs", GTC 2015; W. Chan, I. Lane,
arXiv:1504.01482.

Rank 0 is the server and has the parameters theta; ranks 1, 2, ... are the shards. A shard trains on its own
copy. After a minibatch, it asks whether the server is free. If so, they synchronise; else it trains on
another minibatch and accumulates its move d:

    server   v <- mu v + lambda^s d,    theta <- theta + v
             s: changes of theta by others since the shard's last synchronisation
    shard    continues from theta

Moves are added, not averaged: the learning rate does not scale with the number of shards. At the end of an
epoch, each shard sends its last move, waiting for the server if necessary, and all ranks take theta.

The talks mention momentum and "gradient decay" on the server and a maximum distance between server and shard,
without formulas or values. Here, mu = `--server-momentum` and lambda = `--gradient-decay` (default 1, no
decay, as in arXiv:1504.01482). The distance is counted in minibatches of the shard; after `--max-distance` of
them it waits for the server.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.parallel.mixing.asynchronous import AsynchronousStrategy
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import SchemeOptions

if TYPE_CHECKING:
    import torch

_REQUEST_TAG, _ANSWER_TAG, _MOVE_TAG, _THETA_TAG = 1, 2, 3, 4
_TRY, _WAIT, _DONE, _STOP = 0, 1, 2, 3


@dataclass(frozen=True)
class ServerOptions(SchemeOptions):
    """Options of the parameter server."""

    server_momentum: float = option(0.0, "momentum of the server", minimum=0.0, maximum=0.999, rare=True)
    gradient_decay: float = option(
        1.0,
        "factor on the change that a shard sends, for each change of the server since the shard "
        "last synchronised",
        minimum=0.0,
        maximum=1.0,
        rare=True,
    )
    max_distance: int = option(
        0, "minibatches after which a shard waits for the server; 0: it never waits", minimum=0, rare=True
    )


class Server:
    """The server's two threads: one receives requests, the other (the rank's own) synchronises with one shard
    after the other.

    In the context `receiving_requests`, the rank calls `synchronise` with `next_shard` until that is None.

    staleness  Counter: number of synchronisations by the number of changes since the shard's previous one
    """

    def __init__(self, codec: PayloadCodec, options: ServerOptions):
        self.codec, self.comm, self.options, self.changed = codec, codec.comm, options, codec.comm.condition()
        self.staleness: Counter[int] = Counter()
        self.num_changes = 0
        # number of changes at each shard's last synchronisation
        self._last_change = np.zeros(self.comm.size, np.int64)

    def set(self, theta: torch.Tensor) -> None:
        """Start with these parameters."""
        self.theta = theta.to("cpu", copy=True)
        self.velocity, self._move = (
            self.theta.new_zeros(self.theta.shape),
            self.theta.new_empty(self.theta.shape),
        )
        self._last_change[:] = self.num_changes

    @contextlib.contextmanager
    def receiving_requests(self, counts: np.ndarray) -> Iterator[None]:
        """Receive requests; `counts` are updated and sent to the shards."""
        self._queue: deque[int] = deque()
        self._is_busy, self._num_done, self._counts = False, 0, counts
        self._task = self.comm.background(self._receive_requests)
        yield
        self.comm.send(np.array([_STOP, 0]), self.comm.rank, _REQUEST_TAG)
        self._task.join()

    def _receive_requests(self) -> None:
        """Grant a shard's attempt if the server is free, else refuse it. Queue shards that wait."""
        request = np.zeros(2, np.int64)
        while True:
            shard = self.comm.receive(request, _REQUEST_TAG)
            if request[0] == _STOP:
                return
            with self.changed:
                is_refused = request[0] == _TRY and (self._is_busy or len(self._queue) > 0)
                if request[0] in (_TRY, _WAIT) and not is_refused:
                    self._queue.append(shard)
                self._counts[shard] = request[1]
                self._num_done += int(request[0] == _DONE)
                self.changed.notify_all()
            if is_refused:
                self._answer(shard, False)

    def _answer(self, shard: int, yes: bool) -> None:
        self.comm.send(np.array([yes], np.int64), shard, _ANSWER_TAG)

    def next_shard(self) -> int | None:
        """The next shard in the queue, as soon as there is one; None when all shards are done."""
        with self.changed:
            self._is_busy = False
            while not self._queue and self._num_done < self.comm.size - 1:
                self._task.check()
                self.changed.wait(1.0)
            self._is_busy = bool(self._queue)
            return self._queue.popleft() if self._queue else None

    def synchronise(self, shard: int) -> None:
        """Grant a shard's request, receive its move, send it theta."""
        self._answer(shard, True)
        self.codec.receive_move(self._move, _MOVE_TAG, shard)
        staleness = int(self.num_changes - self._last_change[shard])
        self.staleness[staleness] += 1
        self.velocity.mul_(self.options.server_momentum).add_(
            self._move, alpha=self.options.gradient_decay**staleness
        )
        self.theta.add_(self.velocity)
        self.num_changes += 1
        self._last_change[shard] = self.num_changes
        self.comm.send(self._counts.copy(), shard, _ANSWER_TAG)
        self.comm.send(self.theta, shard, _THETA_TAG)


@register("asgd", options=ServerOptions)
class AsynchronousSgd(AsynchronousStrategy):
    """The server on rank 0, shards elsewhere."""

    options: ServerOptions
    in_background = True

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.distance = 0  # minibatches since the last synchronisation
        if comm.size == 2:
            raise UserError(
                "--parallel asgd: one rank is the server, so 2 ranks train no faster than 1; use 3 or more "
                "ranks"
            )
        self.server = Server(self.codec, options) if comm.rank == 0 and comm.size > 1 else None
        self.is_logger, self.num_averaged = comm.rank == min(1, comm.size - 1), 1
        if self.server:
            self.share = None

    def adopt(self, master: torch.Tensor) -> None:
        """Start with these parameters on the server and all shards."""
        if self.server:
            self.server.set(master)
        self.base, self.distance = master.clone(), 0

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """A shard's step; the server serves until the end of the epoch."""
        if self.server:
            self._serve()
            return False
        self.counts[self.comm.rank] += frames
        if not frames or self.comm.size == 1:
            return frames > 0
        self.distance += 1
        has_to_wait = self.options.max_distance and self.distance >= self.options.max_distance
        return self._synchronise_with_server(master, _WAIT if has_to_wait else _TRY)

    def _serve(self) -> None:
        with self.server.receiving_requests(self.counts):
            while (shard := self.waiting(self.server.next_shard)) is not None:
                self.mixing(self.server.synchronise, shard)

    def is_over(self, frames: int) -> bool:
        """Whether the segment is over; for the server, always, because it returns after the last shard."""
        return self.server is not None or super().is_over(frames)

    def finish(self, master: torch.Tensor) -> None:
        """Send a shard's last move; `master` of the server becomes theta, which all ranks take."""
        if self.comm.size == 1:
            return
        if self.server:
            master.copy_(self.server.theta)
            return
        if self.distance:
            self._synchronise_with_server(master, _WAIT)
        self._send_request(_DONE)

    def consensus(self, master: torch.Tensor) -> None:
        """The server's parameters."""
        if self.server:
            master.copy_(self.server.theta)
        self.codec.host.change(master, self.comm.bcast, by_pieces=True)

    def _synchronise_with_server(self, master: torch.Tensor, kind: int) -> bool:
        """Ask the server; if it grants the request, send the move and take theta. Returns whether it did."""
        is_granted = self.waiting(self._request_synchronisation, kind)
        if is_granted:
            self.mixing(self._push_and_pull, master)
        return is_granted

    def _request_synchronisation(self, kind: int) -> bool:
        """Whether the server synchronises with this shard now; it refuses attempts (`_TRY`) only."""
        self._send_request(kind)
        answer = np.zeros(1, np.int64)
        self.codec.comm.receive(answer, _ANSWER_TAG, 0)
        return bool(answer[0])

    def _send_request(self, kind: int) -> None:
        self.codec.comm.send(np.array([kind, self.own_frames], np.int64), 0, _REQUEST_TAG)

    def _push_and_pull(self, master: torch.Tensor) -> None:
        """Send the accumulated move and continue from the server's parameters."""
        theta, message = master.new_empty(master.shape, device="cpu"), np.zeros_like(self.counts)
        self.codec.send_move((master - self.base).cpu(), 0, _MOVE_TAG)
        self.codec.comm.receive(message, _ANSWER_TAG, 0)
        self.codec.comm.receive(theta, _THETA_TAG, 0)
        self.counts[:] = message
        master.copy_(theta)
        self.base.copy_(theta)
        self.distance = 0
