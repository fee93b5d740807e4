"""Weights that a rank shares with others while it computes: the base of all forms of asynchronous
decentralised SGD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.asynchronous import merge
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.scheme_options import SchemeOptions

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm

REQUEST_TAG = 1
STOP, ASK = 0, 1  # first numbers of a request


class Peer:
    """One rank's weights, and the threads that mix them with the weights of other ranks.

    A subclass defines `move`, `threads`, `state_dict` and `load_state_dict`.

    weights    W, on the CPU
    counts     frames that each learner has processed, merged with the counts in each message
    staleness  Counter, defined by the subclass
    answers    whether one of the threads answers requests of other ranks, until STOP
    """

    answers = True

    def __init__(self, comm: Comm, options: SchemeOptions, counts: np.ndarray):
        self.comm, self.barrier_comm, self.changed = comm.split(0), comm.split(0), comm.condition()
        self.codec, self.counts = PayloadCodec(self.comm, options), counts
        self.staleness: Counter[int] = Counter()
        self._communicating = self._ended = False
        self._tasks: list = []

    def set(self, weights: torch.Tensor) -> None:
        """Start with these weights, the same on all ranks."""
        self.weights = weights.to("cpu", copy=True)
        self.codec.set_base(self.weights)

    def threads(self) -> list[Callable[[], None]]:
        """The functions that run in the background from `start` to `finish`."""
        raise NotImplementedError

    def move(self, delta: torch.Tensor) -> torch.Tensor:
        """Add the learner's move; returns the weights for the next gradient, valid until the next call."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """This peer's state for a checkpoint, between `finish` and `start`."""
        raise NotImplementedError

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`, after `set`."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the threads."""
        self._ended = False
        if self.comm.size > 1:
            self._tasks = [self.comm.background(thread) for thread in self.threads()]

    def finish(self) -> None:
        """Wait until all ranks have finished communicating, and answer requests until then. Collective: every
        rank must call this."""
        if not self._tasks:
            return
        with self.changed:
            self._wait_for_communication()
            self._ended = True
            self.changed.notify_all()
        self.barrier_comm.barrier()  # from here on, ranks send no requests
        if self.answers:
            self.comm.send(self._request(STOP), self.comm.rank, REQUEST_TAG)
        for task in self._tasks:
            task.join()
        self._tasks = []

    def _request(self, kind: int) -> np.ndarray:
        """A message with REQUEST_TAG."""
        return np.array([kind])

    def _wait_for_communication(self) -> None:
        """Wait for the end of the communication that the last move started."""
        while self._communicating:
            for task in self._tasks:
                task.check()
            self.changed.wait(1.0)

    def _has_to_communicate(self) -> bool:
        """Wait for a move or the end; returns whether there was a move."""
        with self.changed:
            while not (self._communicating or self._ended):
                self.changed.wait(1.0)
            return self._communicating

    def _end_communication(self, counts: np.ndarray) -> None:
        """End the communication that the last move started, in which another rank has sent its counts."""
        merge(self.counts, counts)
        self._communicating = False
        self.changed.notify_all()
