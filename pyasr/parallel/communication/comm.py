"""Communication between ranks: one small interface over MPI (`mpi_comm`), a single rank, threads of one
process (`rank_threads`), and simulated time (`simulator`).

    def rank(spec, comm: Comm):
        counts = np.zeros(10)                 # this rank's contribution
        comm.allreduce(counts)                # now the sum over all ranks, on every rank

Collectives are blocking: every rank must call the same ones in the same order. Messages between two ranks
with the same tag arrive in order. A thread that waits for a message yields the processor. Arrays are numpy
arrays or CPU tensors; they are changed in place.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pyasr.base import log
from pyasr.parallel.communication.buffers import bytes_of, reduce_in_place

EXCHANGE_TAG = 0


class Comm(Protocol):
    """A group of `size` ranks; this process is rank `rank` (0-based)."""

    rank: int
    size: int
    # whether large sums may use the ring instead of the MPI library; inherited by parts of the group
    uses_ring: bool

    def allreduce(self, array, op: str = "sum"):
        """Replace `array` on every rank by the elementwise sum (or "max", "min", "mean") over ranks; returns
        `array`.

        float64, float32, int64, int32 and uint8 are added in their own type; float16, bfloat16, int16 and
        int8 in 32 bits, rounded once. Raises TypeError for other types and for tensors that are not in host
        memory.
        """

    def reduce_scalar(self, value: float, op: str = "sum") -> float:
        """The sum (or "max", "min", "mean") of one number over ranks, in float64."""

    def bcast(self, array, root: int = 0):
        """Replace `array` on every rank by the root's, which has the same shape and type; returns `array`."""

    def bcast_object(self, value: Any, root: int = 0) -> Any:
        """The root's `value` on every rank; for small Python objects (pickled)."""

    def gather(self, value: Any, root: int = 0) -> list | None:
        """The values of all ranks in rank order on the root, None elsewhere; for small Python objects
        (pickled)."""

    def allgather(self, value: Any) -> list:
        """The values of all ranks in rank order on every rank; for small Python objects (pickled)."""

    def barrier(self) -> None:
        """Wait until all ranks have called this."""

    def split(self, colour: int) -> Comm:
        """The group of the ranks that called this with the same `colour`, in the same order."""

    def split_by_host(self) -> Comm:
        """The group of the ranks that share memory with this one."""

    def exchange(self, outgoing, to: int, incoming, source: int) -> None:
        """Send `outgoing` to rank `to` and fill `incoming` from rank `source`; size and type must match on
        both ends of a message."""

    def start_exchange(self, outgoing, to: int, incoming, source: int) -> Callable[[], None]:
        """Start an `exchange`; the returned function waits for its end. Both arrays must not be used until
        then.

        Several exchanges may be in flight; they are matched in the order of their starts.
        """

    def send(self, array, to: int, tag: int) -> None:
        """Send a copy of `array`; on return it may be changed again, possibly before it has been received."""

    def receive(self, array, tag: int, source: int | None = None) -> int:
        """Fill `array` with the next message with this tag, from `source` or any rank; returns the sender."""

    def probe(self, tag: int) -> int | None:
        """The sender of the next message with this tag if one has arrived, else None."""

    def background(self, function: Callable[[], Any]) -> BackgroundTask:
        """Call `function` in another thread of this rank."""

    def condition(self) -> RankCondition:
        """A lock with wait and notify, for the threads of this rank."""

    def time(self) -> float:
        """Monotonic time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Suspend this thread."""

    def log(self, sentence: str) -> None:
        """Log `sentence` on rank 0 only, without synchronisation."""

    @property
    def name(self) -> str:
        """The rank, the number of ranks and the host, for messages."""


class BackgroundTask(Protocol):
    """A function that runs in another thread of a rank."""

    def check(self) -> None:
        """Raise the function's exception, if it has raised one."""

    def join(self) -> None:
        """Wait for the end of the function; raises its exception."""


class RankCondition(Protocol):
    """A lock with wait and notify: what threads of a rank use of `threading.Condition`."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, acquire the lock again; False after a timeout."""

    def notify(self, n: int = 1) -> None:
        """Wake `n` waiting threads."""

    def notify_all(self) -> None:
        """Wake all waiting threads."""


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
    """Base of communicators, on top of `_reduce`, `_bcast_bytes`, `allgather`, `_send_bytes` and
    `_receive_bytes`."""

    rank: int
    size: int
    uses_ring = True

    def _reduce(self, buffer: np.ndarray, op: str) -> None:
        raise NotImplementedError

    def _bcast_bytes(self, raw: np.ndarray, root: int) -> None:
        raise NotImplementedError

    def _exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> None:
        raise NotImplementedError

    def _send_bytes(self, raw: np.ndarray, to: int, tag: int) -> None:
        raise NotImplementedError

    def _receive_bytes(self, raw: np.ndarray, tag: int, source: int | None) -> int:
        raise NotImplementedError

    def allgather(self, value) -> list:
        raise NotImplementedError

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
        """As `Comm.start_exchange`."""
        raw, put_back = bytes_of(incoming)
        wait = self._start_exchange_bytes(bytes_of(outgoing)[0], to, raw, source)

        def finish() -> None:
            wait()
            put_back()

        return finish

    def _start_exchange_bytes(
        self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int
    ) -> Callable[[], None]:
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

    def background(self, function: Callable[[], Any]) -> BackgroundTask:
        return Task(function)

    def condition(self) -> RankCondition:
        return threading.Condition()

    def time(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def log(self, sentence: str) -> None:
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

    def probe(self, tag: int) -> None:
        return None

    def _exchange_bytes(self, outgoing: np.ndarray, to: int, incoming: np.ndarray, source: int) -> None:
        incoming[...] = outgoing
