r"""AD-PSGD, asynchronous decentralised SGD, and H-ADPSGD, its hierarchical form, in which the ranks of a node
are one learner.

References: X. Lian et al., ICML 2018; W. Zhang, X. Cui, et al. (IBM), arXiv:1904.04956 (this form: active and
passive learners, gradient at the weights before the pull) and arXiv:1907.05701 (H-ADPSGD).

Each rank has weights W, changed by its own moves and by exchanges with other ranks. Odd ranks are senders,
even ranks receivers: the graph is bipartite, so a deadlock cannot occur. The gradient g of a minibatch is
computed at the weights W_0 that the learner was given, while W continues to be exchanged; then

    learner    W <- W - a g,  W_0 <- W               a sender first waits for the end of its last exchange
    sender i   after each of its moves: exchange with the left and the right neighbour in turn
               (or a random receiver):
                   W_i <- (W_i + W_j) / 2
    receiver j on each request: send S, a copy of W_j, receive W_i:
                   W_j <- W_j + (W_i - S) / 2

The receiver also computes the average, of S, and keeps the moves that its learner made meanwhile, so the mean
over ranks is preserved. The staleness of a sender's gradient is at most one exchange; that of a receiver's
gradient is the number of exchanges during the minibatch. A sender makes exactly one exchange per move.

With `--topology`, ranks mix with the neighbours of a topology instead; see `neighbours`.

H-ADPSGD: the ranks of a node average their moves after every minibatch (all-reduce). The first rank of the
node has W, runs AD-PSGD among the nodes, and broadcasts W to the other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base.cli.option_uses import unless_set
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.parallel.mixing.asynchronous import AsynchronousStrategy
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.peers import ASK, REQUEST_TAG, STOP, Peer
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import TopologyOptions
from pyasr.parallel.strategies.neighbours import NeighbourPeer

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm


@dataclass(frozen=True)
class PeerOptions(TopologyOptions):
    """Options of exchanges between ranks or nodes: in pairs, or with the neighbours of a topology."""

    random_peers: bool = option(
        False,
        "exchange with random ranks instead of neighbours",
        only=unless_set("topology", reason="its rounds define the neighbours"),
        rare=True,
    )


@dataclass(frozen=True)
class NodeOptions(PeerOptions):
    """Options of the hierarchical form."""

    ranks_per_node: int | None = option(
        None, "ranks that form one learner; none: all ranks of a host", minimum=1
    )


class PairPeer(Peer):
    """One rank's weights, and the thread that exchanges them with one other rank at a time.

    num_exchanges  number of exchanges since the beginning of the training
    staleness      Counter: number of this rank's moves by the number of exchanges between the weights of the
                   gradient and those it changed
    """

    def __init__(self, comm: Comm, options: PeerOptions, counts: np.ndarray):
        super().__init__(comm, options, counts)
        self.random_peers, self.num_exchanges, self._given_at = options.random_peers, 0, 0
        self.is_sender = comm.rank % 2 == 1
        self.answers = not self.is_sender

    def set(self, weights: torch.Tensor) -> None:
        """Start with these weights, the same on all ranks."""
        super().set(weights)
        self._sent, self._incoming, self._given = (
            self.weights.new_empty(self.weights.shape) for _ in range(3)
        )
        self._given_at = self.num_exchanges

    def state_dict(self) -> dict:
        """The number of exchanges, which determines a sender's next receiver."""
        return {"num_exchanges": self.num_exchanges}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        self.num_exchanges = self._given_at = state["num_exchanges"]

    def threads(self) -> list[Callable[[], None]]:
        """The thread of a sender or of a receiver."""
        return [self._send if self.is_sender else self._answer]

    def move(self, delta: torch.Tensor) -> torch.Tensor:
        """Add the learner's move to W; returns a copy of W for the next gradient."""
        with self.changed:
            self._wait_for_communication()
            self.staleness[self.num_exchanges - self._given_at] += 1
            self.weights.add_(delta)
            self._given_at, self._communicating = self.num_exchanges, self.is_sender
            self.changed.notify_all()
            return self._given.copy_(self.weights)

    def _send(self) -> None:
        """Thread of a sender: exchange after each move."""
        while self._has_to_communicate():
            receiver = self._receiver()
            self.comm.send(self._request(ASK), receiver, REQUEST_TAG)
            others = self._exchange(self.weights, receiver)
            with self.changed:
                self.weights.lerp_(self._incoming, 0.5)
                self._end_exchange(others)

    def _answer(self) -> None:
        """Thread of a receiver: exchange with each sender that asks."""
        request = self._request(STOP)
        while True:
            sender = self.comm.receive(request, REQUEST_TAG)
            if request[0] == STOP:
                return
            with self.changed:
                self._sent.copy_(self.weights)
            others = self._exchange(self._sent, sender)
            with self.changed:
                self.weights.add_(self._incoming.sub_(self._sent), alpha=0.5)
                self._end_exchange(others)

    def _exchange(self, outgoing: torch.Tensor, other: int) -> np.ndarray:
        """Swap weights and counts with another rank. Returns its counts; its weights are in `_incoming`."""
        others = np.zeros_like(self.counts)
        self.comm.exchange(self.counts.copy(), other, others, other)
        self.wire.offer(outgoing)
        self.wire.exchange(other, self._incoming, other)
        return others

    def _end_exchange(self, others: np.ndarray) -> None:
        self.num_exchanges += 1
        self._end_communication(others)

    def _receiver(self) -> int:
        """The rank with which a sender exchanges next."""
        rank, size = self.comm.rank, self.comm.size
        if self.random_peers:
            return 2 * int(generator(0, "receiver", rank, self.num_exchanges).integers((size + 1) // 2))
        return (rank + (1 if self.num_exchanges % 2 else -1)) % size


def make_peer(comm: Comm, options: PeerOptions, counts: np.ndarray) -> Peer:
    """This rank's weights in `comm`: mixed by a topology if one is given, else exchanged in pairs."""
    return (NeighbourPeer if options.topology else PairPeer)(comm, options, counts)


class PeerStrategy(AsynchronousStrategy):
    """Schemes with a `Peer`.

    peer   this rank's weights; None if another rank holds them
    """

    options: TopologyOptions
    peer: Peer | None = None

    @property
    def staleness(self) -> Counter | None:
        """Staleness of the neighbours' weights; None without a topology."""
        if not self.options.topology:
            return None
        return self.peer.staleness if self.peer else Counter()

    def adopt(self, master: torch.Tensor) -> None:
        """Start with these weights."""
        if self.peer:
            self.peer.set(master)
        self.base = master.clone()

    def go_on(self) -> None:
        """Begin a stretch and allow exchanges."""
        super().go_on()
        if self.peer:
            self.peer.start()

    def finish(self, master: torch.Tensor) -> None:
        """Copy the weights after all exchanges into `master`."""
        if self.peer:
            self.peer.finish()
            master.copy_(self.peer.weights)

    def state_dict(self) -> dict:
        """The base class's state and that of the peer."""
        return {**super().state_dict(), **(self.peer.state_dict() if self.peer else {})}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        if self.peer:
            self.peer.load_state_dict(state)


@register("adpsgd", options=PeerOptions)
class AdPsgd(PeerStrategy):
    """AD-PSGD among all ranks."""

    peer: Peer

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.peer = make_peer(comm, options, self.counts)

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """Add the move to W; the learner continues from the result."""
        self.counts[self.comm.rank] += frames
        if frames:
            move = self.base.neg_().add_(master)
            master.copy_(self.waiting(self.peer.move, move.cpu()))
            self.base.copy_(master)
        return bool(frames)


@register("hadpsgd", options=NodeOptions)
class HierarchicalAdPsgd(PeerStrategy):
    """All-reduce within a node, AD-PSGD among nodes.

    node    the ranks of this node
    peer    the node's weights, on its first rank; None on the others
    """

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.node = (
            comm.split(comm.rank // options.ranks_per_node)
            if options.ranks_per_node
            else comm.split_by_host()
        )
        leaders = comm.split(min(self.node.rank, 1))
        self.node_wire = PayloadCodec(self.node, options)
        self.number, num_nodes = self.node.bcast_object((leaders.rank, leaders.size))
        self.counts = np.zeros(num_nodes, np.int64)
        self.peer = make_peer(leaders, options, self.counts) if self.node.rank == 0 else None

    def share_move(self, master: torch.Tensor, frames: int) -> bool:
        """Average a node's moves, weighted by frames. The first rank adds the mean to W and broadcasts W."""
        self._node_frames = int(self.waiting(self.node.reduce_scalar, frames))
        if not self._node_frames:
            return False
        self.mixing(self._move_together, master, frames / self._node_frames)
        self.base.copy_(master)
        return True

    def _move_together(self, master: torch.Tensor, weight: float) -> None:
        self.counts[self.number] += self._node_frames if self.peer else 0
        move = self.node_wire.sum_moves(self.base.neg_().add_(master).cpu(), weight, 1.0)
        weights = self.peer.move(move) if self.peer else move
        master.copy_(self.node.bcast(weights))
        known = self.node.bcast(self.counts.copy())
        if not self.peer:
            self.counts[:] = known

    def is_over(self, frames: int) -> bool:
        """The decision of the node's first rank, whose counts may have changed since it last sent them."""
        return self.node.bcast_object(self.peer is not None and super().is_over(self._node_frames))

    def finish(self, master: torch.Tensor) -> None:
        """Copy the node's weights after all exchanges into `master`."""
        super().finish(master)
        self.node_wire.host.change(master, self.node.bcast, by_pieces=True)
