"""Communication between ranks: one small interface over MPI, a single rank, threads of one process (`threads`), and simulated time
(`simulator`).

    def rank(spec, comm: Comm):
        counts = np.zeros(10)                 # this rank's contribution
        comm.allreduce(counts)                # now the sum over all ranks, on every rank

Collectives are blocking: every rank must call the same ones in the same order. Messages between two ranks with the same tag arrive in
order. A thread that waits for a message yields the processor. Arrays are numpy arrays or CPU tensors; they are changed in place. Only this
module imports mpi4py, when an `MpiComm` is constructed.
"""

from __future__ import annotations

import functools
import socket
import threading
import time
from pathlib import Path
from typing import Any, Callable, Protocol

import numpy as np

from pyasr.base import log
from pyasr.parallel.communication.buffers import bytes_of, reduce_in_place

EXCHANGE_TAG = 0
_SHARED_MEMORY = "/dev/shm/mpich_shm_"
_POLL_S = 0.0005  # between two series of polls for a message
_PIECE = 4 << 20  # bytes of a message sent as one: over TCP, MPICH sends the two directions of larger messages one after the other
_LARGE_BETWEEN_HOSTS = 1_000_000  # bytes of a sum from which the ring is not slower than MPICH's all-reduce
_LARGE_WITHIN_HOST = 40_000_000  # the same if all ranks share memory
_LARGE = 1 << 18  # bytes of a message from which a rank does not spin, as there may be more ranks than cores
_LOOKS = 20  # polls of a series: over TCP, a poll transfers a few KB of a message, and one per 0.5 ms would not saturate 1 Gbit/s


class Comm(Protocol):
    """A group of `size` ranks; this process is rank `rank` (0-based)."""

    rank: int
    size: int
    uses_ring: bool  # whether large sums may use the ring instead of the MPI library; inherited by parts of the group

    def allreduce(self, array, op: str = "sum"):
        """Replace `array` on every rank by the elementwise sum (or "max", "min", "mean") over ranks; returns `array`.

        float64, float32, int64, int32 and uint8 are added in their own type; float16, bfloat16, int16 and int8 in 32 bits, rounded once.
        Raises TypeError for other types and for tensors that are not in host memory.
        """

    def reduce_scalar(self, value: float, op: str = "sum") -> float:
        """The sum (or "max", "min", "mean") of one number over ranks, in float64."""

    def bcast(self, array, root: int = 0):
        """Replace `array` on every rank by the root's, which has the same shape and type; returns `array`."""

    def bcast_object(self, value: Any, root: int = 0) -> Any:
        """The root's `value` on every rank; for small Python objects (pickled)."""

    def gather(self, value: Any, root: int = 0) -> list | None:
        """The values of all ranks in rank order on the root, None elsewhere; for small Python objects (pickled)."""

    def allgather(self, value: Any) -> list:
        """The values of all ranks in rank order on every rank; for small Python objects (pickled)."""

    def barrier(self) -> None:
        """Wait until all ranks have called this."""

    def split(self, colour: int) -> "Comm":
        """The group of the ranks that called this with the same `colour`, in the same order."""

    def split_by_host(self) -> "Comm":
        """The group of the ranks that share memory with this one."""

    def exchange(self, outgoing, to: int, incoming, source: int) -> None:
        """Send `outgoing` to rank `to` and fill `incoming` from rank `source`; size and type must match on both ends of a message."""

    def start_exchange(self, outgoing, to: int, incoming, source: int) -> Callable[[], None]:
        """Start an `exchange`; the returned function waits for its end. Both arrays must not be used until then.

        Several exchanges may be in flight; they are matched in the order of their starts.
        """

    def send(self, array, to: int, tag: int) -> None:
        """Send a copy of `array`; on return it may be changed again, possibly before it has been received."""

    def receive(self, array, tag: int, source: int | None = None) -> int:
        """Fill `array` with the next message with this tag, from `source` or any rank; returns the sender."""

    def waiting(self, tag: int) -> int | None:
        """The sender of the next message with this tag if one has arrived, else None."""

    def background(self, function: Callable[[], Any]) -> "Task":
        """Call `function` in another thread of this rank."""

    def condition(self) -> threading.Condition:
        """A lock with wait and notify, for the threads of this rank."""

    def time(self) -> float:
        """Monotonic time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Suspend this thread."""

    def say(self, sentence: str) -> None:
        """Log `sentence` on rank 0 only, without synchronisation."""


class Task:
    """A function that runs in another thread."""

    def __init__(self, function: Callable[[], Any]):
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """Raise the function's exception, if it has raised one."""
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Wait for the end of the function; raises its exception."""
        self._thread.join()
        self.check()


class BaseComm:
    """Base of communicators, on top of `_reduce`, `_bcast_bytes`, `allgather`, `_send_bytes` and `_receive_bytes`."""

    rank: int
    size: int
    uses_ring = True

    def allreduce(self, array, op: str = "sum"):
        reduce_in_place(array, op, self.size, self._reduce)
        return array

    def reduce_scalar(self, value: float, op: str = "sum") -> float:
        return float(self.allreduce(np.array([value], np.float64), op)[0])

    def bcast(self, array, root: int = 0):
        raw, put_back = bytes_of(array)
        self._bcast_bytes(raw, root)
        put_back()
        return array

    def bcast_object(self, value, root: int = 0):
        return self.allgather(value if self.rank == root else None)[root]

    def gather(self, value, root: int = 0):
        values = self.allgather(value)
        return values if self.rank == root else None

    def exchange(self, outgoing, to: int, incoming, source: int) -> None:
        self.start_exchange(outgoing, to, incoming, source)()

    def start_exchange(self, outgoing, to: int, incoming, source: int) -> Callable[[], None]:
        raw, put_back = bytes_of(incoming)
        wait = self._start_exchange_bytes(bytes_of(outgoing)[0], to, raw, source)
        return lambda: (wait(), put_back())

    def _start_exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> Callable[[], None]:
        """Default for communicators whose messages do not occupy this thread: exchange immediately."""
        self._exchange_bytes(outgoing, to, incoming, source)
        return lambda: None

    def send(self, array, to: int, tag: int) -> None:
        self._send_bytes(bytes_of(array)[0], to, tag)

    def receive(self, array, tag: int, source: int | None = None) -> int:
        raw, put_back = bytes_of(array)
        sender = self._receive_bytes(raw, tag, source)
        put_back()
        return sender

    def background(self, function: Callable[[], Any]) -> Task:
        return Task(function)

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def time(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def say(self, sentence: str) -> None:
        if self.rank == 0:
            log.info(sentence)

    @property
    def name(self) -> str:
        """`rank 1 of 4 on HOST`, for messages."""
        return f"rank {self.rank} of {self.size} on {socket.gethostname()}"


class SoloComm(BaseComm):
    """A single rank: collectives do nothing."""

    rank, size = 0, 1

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        pass

    def _bcast_bytes(self, raw: np.ndarray, root: int) -> None:
        pass

    def allgather(self, value):
        return [value]

    def barrier(self) -> None:
        pass

    def split(self, colour: int) -> Comm:
        return self

    def split_by_host(self) -> Comm:
        return self

    def waiting(self, tag: int) -> None:
        return None

    def _exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> None:
        incoming[...] = outgoing


def _is_main() -> bool:
    """Whether this is the main thread, which computes and may spin in MPI while it waits; other threads must yield the processor."""
    return threading.current_thread() is threading.main_thread()


def _poll(is_done: Callable[[], bool]) -> None:
    """Poll until `is_done`, with sleeps; MPI makes progress in each poll."""
    while not any(is_done() for _ in range(_LOOKS)):
        time.sleep(_POLL_S)


def _unname_shared_memory() -> None:
    """Remove the files by which the ranks of a host share MPICH's memory, once all have opened them. Killed ranks would leave them."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines() if maps.exists() else []
    for name in {line.split()[-1] for line in lines if _SHARED_MEMORY in line and not line.endswith("(deleted)")}:
        Path(name).unlink(missing_ok=True)


class MpiComm(BaseComm):
    """The ranks that mpiexec started, or a part of them. Start Python as `python -m mpi4py`, see `pyasr.parallel.ranks.rank`."""

    def __init__(self, comm=None):
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.barrier()
        _unname_shared_memory()

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
        """Whether a ring is faster than MPICH's sum of so many bytes (benchmarks/ring_allreduce.py; docs/topologies.md)."""
        return num_bytes >= _LARGE_WITHIN_HOST or (num_bytes >= _LARGE_BETWEEN_HOSTS and self.spans_hosts)

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        if self.uses_ring and op == "sum" and buffer.dtype == np.float32 and self._is_large(buffer.nbytes):
            import torch

            self._ring(torch.from_numpy(buffer.reshape(-1)))
        else:  # other ranks may add in another thread, and MPI does not match a blocking with a non-blocking sum
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

    def _start_exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> Callable[[], None]:
        pieces = [slice(begin, begin + _PIECE) for begin in range(0, max(len(outgoing), 1), _PIECE)]
        pairs = [[self._comm.Irecv(incoming[piece], source, EXCHANGE_TAG), self._comm.Isend(outgoing[piece], to, EXCHANGE_TAG)]
                 for piece in pieces]  # fmt: skip
        return lambda: self._wait_for(pairs, len(outgoing) >= _LARGE)

    def _wait_for(self, pairs: list[list], is_large: bool) -> None:
        wait_all, test_all = self._mpi.Request.Waitall, self._mpi.Request.Testall
        for pair in pairs:
            if _is_main() and not is_large:
                wait_all(pair)
            else:
                _poll(lambda pair=pair: test_all(pair))

    def _send_bytes(self, raw: np.ndarray, to: int, tag: int) -> None:
        _poll(self._comm.Isend(raw, to, tag).Test)

    def _receive_bytes(self, raw: np.ndarray, tag: int, source: int | None) -> int:
        _poll(lambda: self.waiting(tag, source) is not None)
        sender = self.waiting(tag, source)
        _poll(self._comm.Irecv(raw, sender, tag).Test)
        return sender

    def waiting(self, tag: int, source: int | None = None) -> int | None:
        status = self._mpi.Status()
        found = self._comm.Iprobe(self._mpi.ANY_SOURCE if source is None else source, tag, status)
        return status.Get_source() if found else None

    def abort(self, status: int = 1) -> None:
        """End all ranks of the job immediately, not only those of this group."""
        self._mpi.COMM_WORLD.Abort(status)
