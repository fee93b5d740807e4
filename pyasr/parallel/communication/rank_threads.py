"""Ranks as threads of one process, for tests with many ranks and without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from pyasr.parallel.communication.comm import EXCHANGE_TAG, BaseComm, Comm

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class _Board:
    """Memory shared by a group's threads. `family` lists the boards of groups split from one another."""

    def __init__(self, size: int, family: list | None = None):
        self.slots: list = [None] * size
        self.barrier = threading.Barrier(size)
        # (receiver, tag): (sender, bytes), the oldest first
        self.mail: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}
        self.changed = threading.Condition()
        self.family = [] if family is None else family
        self.family.append(self)

    def abort(self) -> None:
        self.barrier.abort()
        with self.changed:
            self.changed.notify_all()


class ThreadComm(BaseComm):
    """Ranks as threads of one process, for tests with many ranks and without MPI; see `run_threads`.

    Sums are taken in rank order, so results are the same in every run.
    """

    def __init__(self, rank: int, board: _Board):
        self.rank, self.size, self._board = rank, len(board.slots), board

    def _post(self, value) -> list:
        """Every rank's value; the slots may be reused after one more barrier."""
        self._board.slots[self.rank] = value
        self._board.barrier.wait()
        return list(self._board.slots)

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        total = REDUCE[op].reduce(np.stack(self._post(buffer)), axis=0, dtype=buffer.dtype)
        self._board.barrier.wait()
        buffer[...] = total
        self._board.barrier.wait()

    def _bcast_bytes(self, raw: np.ndarray, root: int) -> None:
        source = self._post(raw)[root]
        if self.rank != root:
            raw[...] = source
        self._board.barrier.wait()

    def allgather(self, value):
        values = self._post(value)
        self._board.barrier.wait()
        return values

    def barrier(self) -> None:
        self._board.barrier.wait()

    def split(self, colour: int) -> Comm:
        colours = self.allgather(colour)
        members = [rank for rank, other in enumerate(colours) if other == colour]
        boards = self.allgather(_Board(len(members), self._board.family))
        return ThreadComm(members.index(self.rank), boards[members[0]])

    def split_by_host(self) -> Comm:
        return self.split(0)

    def _exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> None:
        self._send_bytes(outgoing, to, EXCHANGE_TAG)
        self._receive_bytes(incoming, EXCHANGE_TAG, source)

    def _send_bytes(self, raw: np.ndarray, to: int, tag: int) -> None:
        with self._board.changed:
            self._board.mail.setdefault((to, tag), []).append((self.rank, raw.copy()))
            self._board.changed.notify_all()

    def _receive_bytes(self, raw: np.ndarray, tag: int, source: int | None) -> int:
        with self._board.changed:
            while (index := self._find(tag, source)) is None:
                self._board.changed.wait()
            sender, message = self._board.mail[self.rank, tag].pop(index)
        raw[...] = message
        return sender

    def probe(self, tag: int) -> int | None:
        with self._board.changed:
            index = self._find(tag, None)
            return None if index is None else self._board.mail[self.rank, tag][index][0]

    def _find(self, tag: int, source: int | None) -> int | None:
        """Index of the oldest matching message."""
        if self._board.barrier.broken:
            raise threading.BrokenBarrierError
        senders = [sender for sender, _ in self._board.mail.get((self.rank, tag), ())]
        return next((i for i, sender in enumerate(senders) if source in (None, sender)), None)

    def abort(self) -> None:
        """Wake all ranks that wait for this one; they raise `threading.BrokenBarrierError`."""
        for board in self._board.family:
            board.abort()


def run_threads(num: int, function: Callable[[Comm], Any]) -> list:
    """Call `function(comm)` on `num` ranks that are threads of this process; returns the results in rank
    order.

    If ranks raise, the others are woken from their collectives, and the exception of the lowest failed rank
    is raised here.
    """
    board, results, errors = _Board(num), [None] * num, {}

    def run_rank(rank: int) -> None:
        comm = ThreadComm(rank, board)
        try:
            results[rank] = function(comm)
        except BaseException as error:
            errors[rank] = error
            comm.abort()

    threads = [threading.Thread(target=run_rank, args=(rank,), name=f"rank-{rank}") for rank in range(num)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [e for _, e in sorted(errors.items()) if not isinstance(e, threading.BrokenBarrierError)]
    if errors:
        raise (own or list(errors.values()))[0]
    return results
