"""Communication between the ranks of an MPI job. Only this module imports mpi4py, when an `MpiComm` is
constructed."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.parallel.communication.comm import EXCHANGE_TAG, BaseComm, Comm

_SHARED_MEMORY = "/dev/shm/mpich_shm_"
_POLL_S = 0.0005  # between two series of polls for a message
# bytes of a message sent as one: over TCP, MPICH sends the two directions of larger messages one after the
# other
_PIECE = 4 << 20
_LARGE_BETWEEN_HOSTS = 1_000_000  # bytes of a sum from which the ring is not slower than MPICH's all-reduce
_LARGE_WITHIN_HOST = 40_000_000  # the same if all ranks share memory
_LARGE = 1 << 18  # bytes of a message from which a rank does not spin, as there may be more ranks than cores
# polls of a series: over TCP, a poll transfers a few KB of a message, and one per 0.5 ms would not saturate 1
# Gbit/s
_POLLS = 20


def _is_main() -> bool:
    """Whether this is the main thread, which computes and may spin in MPI while it waits; other threads must
    yield the processor."""
    return threading.current_thread() is threading.main_thread()


def _poll(is_done: Callable[[], bool]) -> None:
    """Poll until `is_done`, with sleeps; MPI makes progress in each poll."""
    while not any(is_done() for _ in range(_POLLS)):
        time.sleep(_POLL_S)


def _unlink_shared_memory() -> None:
    """Remove the files by which the ranks of a host share MPICH's memory, once all have opened them. Killed
    ranks would leave them."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines() if maps.exists() else []
    for name in {
        line.split()[-1] for line in lines if _SHARED_MEMORY in line and not line.endswith("(deleted)")
    }:
        Path(name).unlink(missing_ok=True)


class MpiComm(BaseComm):
    """The ranks that mpiexec started, or a part of them. Start Python as `python -m mpi4py`, see
    `pyasr.parallel.ranks.rank`."""

    def __init__(self, comm=None):
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.barrier()
        _unlink_shared_memory()

    @functools.cached_property
    def spans_hosts(self) -> bool:
        """Whether some ranks do not share memory. The first call is collective: every rank must make it."""
        host = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        num_ranks = host.Get_size()
        host.Free()
        return num_ranks < self.size

    @functools.cached_property
    def _ring(self) -> Callable:
        from pyasr.parallel.communication.ring import RingAllreduce

        return RingAllreduce(self)

    def _is_large(self, num_bytes: int) -> bool:
        """Whether a ring is faster than MPICH's sum of `num_bytes` bytes (benchmarks/ring_allreduce.py;
        docs/parallel/topologies.md)."""
        return num_bytes >= _LARGE_WITHIN_HOST or (num_bytes >= _LARGE_BETWEEN_HOSTS and self.spans_hosts)

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        if self.uses_ring and op == "sum" and buffer.dtype == np.float32 and self._is_large(buffer.nbytes):
            import torch

            self._ring(torch.from_numpy(buffer.reshape(-1)))
        # other ranks may add in another thread, and MPI does not match a blocking with a non-blocking sum
        else:
            request = self._comm.Iallreduce(self._mpi.IN_PLACE, buffer, self._ops[op])
            request.Wait() if _is_main() else _poll(request.Test)

    def _bcast_bytes(self, raw: np.ndarray, root: int) -> None:
        self._comm.Bcast(raw, root)

    def bcast_object(self, value, root: int = 0):
        return self._comm.bcast(value, root)

    def gather(self, value, root: int = 0):
        return self._comm.gather(value, root)

    def allgather(self, value):
        return self._comm.allgather(value)

    def barrier(self) -> None:
        self._comm.Barrier()

    def split(self, colour: int) -> Comm:
        return self._part(self._comm.Split(colour, self.rank))

    def split_by_host(self) -> Comm:
        return self._part(self._comm.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank))

    def _part(self, comm) -> MpiComm:
        """Some of these ranks, with the same kind of sum."""
        part = MpiComm(comm)
        part.uses_ring = self.uses_ring
        return part

    def _start_exchange_bytes(
        self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int
    ) -> Callable[[], None]:
        pieces = [slice(begin, begin + _PIECE) for begin in range(0, max(len(outgoing), 1), _PIECE)]
        pairs = [
            [
                self._comm.Irecv(incoming[piece], source, EXCHANGE_TAG),
                self._comm.Isend(outgoing[piece], to, EXCHANGE_TAG),
            ]
            for piece in pieces
        ]
        return lambda: self._wait_for(pairs, len(outgoing) >= _LARGE)

    def _wait_for(self, pairs: list[list], is_large: bool) -> None:
        wait_all, test_all = self._mpi.Request.Waitall, self._mpi.Request.Testall
        for pair in pairs:
            if _is_main() and not is_large:
                wait_all(pair)
            else:
                _poll(functools.partial(test_all, pair))

    def _send_bytes(self, raw: np.ndarray, to: int, tag: int) -> None:
        _poll(self._comm.Isend(raw, to, tag).Test)

    def _receive_bytes(self, raw: np.ndarray, tag: int, source: int | None) -> int:
        _poll(lambda: self.probe(tag, source) is not None)
        sender = self.probe(tag, source)
        assert sender is not None
        _poll(self._comm.Irecv(raw, sender, tag).Test)
        return sender

    def probe(self, tag: int, source: int | None = None) -> int | None:
        status = self._mpi.Status()
        found = self._comm.Iprobe(self._mpi.ANY_SOURCE if source is None else source, tag, status)
        return status.Get_source() if found else None

    def abort(self, status: int = 1) -> None:
        """End all ranks of the job immediately, not only those of this group."""
        self._mpi.COMM_WORLD.Abort(status)
