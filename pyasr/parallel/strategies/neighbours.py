r"""Rings without a barrier: learners mix with their neighbours' last published weights, without waiting for
the neighbours.

References: W. Zhang, X. Cui, et al. (IBM), arXiv:2002.01119, and X. Cui et al., arXiv:2110.11199: fixed and
random mixing (FM, RM).

With T_k the matrix of round k of a topology (`pyasr.parallel.topology.topologies`), step k = 0, 1, ... of
learner l is

    at the same time    g = gradient at w_l,    h = sum_j T_k[l, j] u_j
                        u_l = w_l; u_j: the weights that j published last
    then                w_l <- h - a g,    which l publishes

A reading thread requests the neighbours' weights while the learner computes g. An answering thread of each
neighbour sends the last publication, also while that learner computes, and after its last step, until all
ranks synchronise. So a learner may wait for its own messages, but not for the computation of another learner,
and makes exactly one mixing per gradient. k is the learner's own number of steps since the last
synchronisation. Random rounds are drawn with the number of synchronisations as the seed: learners with the
same number of steps draw the same ring without a message; other learners use the row of their own step.

T_k is doubly stochastic, but without a barrier u_j may contain more or fewer than k steps, and the mean over
learners is not preserved. In addition to its own move, one step of l changes the mean by

    sum_(j != l) T_k[l, j] (u_j - w_l) / P,    at most    (1 - T_k[l, l]) max_j |u_j - w_l| / P

In rounds in which each learner makes one step, and all read weights after k steps, these add up to 0: that is
D-PSGD, W <- W T_k - a g(W). Learners with equal weights keep them bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyasr.parallel.mixing.asynchronous import merge
from pyasr.parallel.mixing.peers import ASK, REQUEST_TAG, STOP, Peer
from pyasr.parallel.mixing.scheme_options import TopologyOptions
from pyasr.parallel.topology.topologies import topology_named

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm
    from pyasr.parallel.mixing.payload_codec import PayloadCodec

_NUMBER_TAG, _WEIGHTS_TAG = 2, 3


class Publication(NamedTuple):
    """Weights as a message (`PayloadCodec.pack`), and the moves of their rank since the last
    synchronisation."""

    message: torch.Tensor
    number: int


class LastPublication:
    """A rank's last publication. The learner writes the next one while another thread may still send a
    previous one.

    Three buffers suffice: the last publication, the one being sent, and the next.
    """

    def __init__(self, codec: PayloadCodec, length: int):
        self._codec, self._messages, self._in_flight = codec, [codec.message(length) for _ in range(3)], None
        self.last = Publication(self._messages[0], 0)

    def write(self, weights: torch.Tensor, number: int) -> Publication:
        """Write the next publication, which does not become the last one yet."""
        message = next(
            message
            for message in self._messages
            if message is not self.last.message and message is not self._in_flight
        )
        self._codec.pack(weights, message)
        return Publication(message, number)

    def acquire(self) -> Publication:
        """The last publication, which stays valid until `release`."""
        self._in_flight = self.last.message
        return self.last

    def release(self) -> None:
        """Release the publication of `acquire`, which has been sent."""
        self._in_flight = None


class NeighbourPeer(Peer):
    """One rank's weights, its last publication of them, a thread that reads the neighbours' weights, and a
    thread that sends its own.

    topology      topology with the matrices T_k
    num_moves     k, the number of moves of this rank since the last synchronisation
    num_segments  number of segments between synchronisations that have begun
    staleness     Counter: number of mixed publications by the number of moves that they were behind this
                  rank's weights; negative: ahead
    """

    def __init__(self, comm: Comm, options: TopologyOptions, counts: np.ndarray):
        super().__init__(comm, options, counts)
        assert options.topology is not None
        self.topology, self.num_moves, self.num_segments = topology_named(options.topology), 0, 0
        self.topology.round(comm.size, 0)  # refuses numbers of ranks that the topology does not take

    def set(self, weights: torch.Tensor) -> None:
        """Start with these weights, the same on all ranks, as the first publication."""
        super().set(weights)
        self.num_moves, self._published = 0, LastPublication(self.codec, len(weights))
        self._published.last = self._published.write(self.weights, 0)
        self._differences, self._theirs = (
            self.weights.new_zeros(len(weights)),
            self.codec.message(len(weights)),
        )

    def state_dict(self) -> dict:
        """The number of segments, which is the seed of random rounds."""
        return {"num_stretches": self.num_segments}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`, between two segments."""
        self.num_segments = state["num_stretches"]

    def threads(self) -> list[Callable[[], None]]:
        """The reading thread and the answering thread."""
        return [self._read, self._answer]

    def start(self) -> None:
        """Begin a segment and read for its first move."""
        self.num_segments += 1
        self._communicating = self.comm.size > 1
        super().start()

    def move(self, delta: torch.Tensor) -> torch.Tensor:
        """W <- h + the learner's move; publish W and start to read for the next move."""
        with self.changed:
            self._wait_for_communication()
        self.weights.add_(self._differences).add_(delta)
        self.num_moves += 1
        if self.comm.size > 1:
            publication = self._published.write(self.weights, self.num_moves)
            with self.changed:
                self._published.last, self._communicating = publication, True
                self.changed.notify_all()
        return self.weights

    def _read(self) -> None:
        """Reading thread: after each move, compute h less this rank's own weights from the neighbours'."""
        while self._has_to_communicate():
            self._differences.zero_()
            counts = np.zeros_like(self.counts)
            for source, weight in self._neighbours():
                self._read_one(source, weight, counts)
            with self.changed:
                self._end_communication(counts)

    def _neighbours(self) -> list[tuple[int, float]]:
        """(rank, weight in T_k) of each rank that this one mixes with in its next move."""
        mixing = self.topology.round(self.comm.size, self.num_moves, self.num_segments)
        row = [
            (int(sources[self.comm.rank]), float(weights[self.comm.rank]))
            for sources, weights in mixing.parts
        ]
        return [(source, weight) for source, weight in row if source != self.comm.rank]

    def _read_one(self, source: int, weight: float, counts: np.ndarray) -> None:
        """Add a neighbour's part to h and its counts to `counts`. A rank waits for at most one answer at a
        time, so the neighbour can send it immediately. If several answers were pending, ranks that answer
        them in different orders would deadlock."""
        header = np.zeros(1 + len(self.counts), np.int64)
        self.comm.send(self._request(ASK), source, REQUEST_TAG)
        self.comm.receive(header, _NUMBER_TAG, source)
        self.comm.receive(self._theirs, _WEIGHTS_TAG, source)
        self.codec.add_difference(self._differences, self._theirs, self._published.last.message, weight)
        self.staleness[self.num_moves - int(header[0])] += 1
        merge(counts, header[1:])

    def _request(self, kind: int) -> np.ndarray:
        """A message with the counts that this rank knows, so that counts travel past a slow rank."""
        return np.array([kind, *self.counts], np.int64)

    def _answer(self) -> None:
        """Answering thread: send the last publication to each rank that requests it."""
        request = self._request(STOP)
        while True:
            reader = self.comm.receive(request, REQUEST_TAG)
            if request[0] == STOP:
                return
            with self.changed:
                merge(self.counts, request[1:])
                publication = self._published.acquire()
            self.comm.send(np.array([publication.number, *self.counts], np.int64), reader, _NUMBER_TAG)
            self.comm.send(publication.message, reader, _WEIGHTS_TAG)
            with self.changed:
                self._published.release()
