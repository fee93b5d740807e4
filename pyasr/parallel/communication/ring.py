r"""A ring all-reduce in pieces, optionally with 16-bit numbers in messages.

P ranks hold vectors x_r of n float32 and compute x = sum_r w_r x_r. The vector is split into P segments. In
each of 2 (P - 1) steps, a rank sends to its right neighbour and receives from its left one. In step
t = 0, 1, ... rank r sends segment r - t and receives segment r - t - 1, both modulo P:

    t < P - 1     reduce-scatter: the received segment is added to w_r times the rank's own, which is sent in
                  the next step
    t >= P - 1    all-gather: rank r now has the sum of segment r + 1; the sums travel around the ring

Every rank sends 2 (P - 1) / P vectors, which is the minimum: P. Patarasuk, X. Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009) 117-124. Segments
are sent in chunks, with several in flight, so that transfers overlap with additions.

All ranks get bit-identical results, in every run: each sum is taken in one direction around the ring, and the
all-gather forwards what it received. A narrow type rounds the partial sums before each of their P - 1 hops,
and the sum once; additions are in float32. With S = sum_r |w_r x_r| the error of an element is at most about

    (P u + P 2^-24) S ,   u = 0 for float32, 2^-11 for float16 (above 2^-14; its maximum is 65504),
                          2^-8 for bfloat16
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch

from pyasr.parallel.communication.comm import Comm

PAYLOAD_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
CHUNK = 1 << 19  # elements, 2 MB of float32: stays in the cache between transfer and addition
SMALL_CHUNK = 1 << 17  # minimum size of chunks if a segment is split to have several in flight
IN_FLIGHT = 4  # chunks in flight


class _Hop(NamedTuple):
    """One chunk sent and one received: their places in the vector, and the step."""

    step: int
    outgoing: slice
    incoming: slice


class RingAllreduce:
    """Weighted sums over the ranks of `comm`. Collective: all ranks must make the same calls. Buffers are
    reused.

    payload  "float32", "float16" or "bfloat16": type of the numbers in messages
    chunk    maximum number of elements in a message
    """

    def __init__(self, comm: Comm, payload: str = "float32", chunk: int = CHUNK):
        if payload not in PAYLOAD_TYPES:
            raise ValueError(f"ring: unknown type '{payload}'; use one of {', '.join(PAYLOAD_TYPES)}")
        self._comm, self._chunk, self._dtype = comm, chunk, PAYLOAD_TYPES[payload]
        self._right, self._left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        self._narrows = payload != "float32"
        self._sent, self._received = (torch.empty(0, dtype=self._dtype) for _ in range(2))

    def __call__(self, x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        """Replace `x`, float32 (n,), contiguous in host memory, by sum_r weight_r x_r on every rank; returns
        `x`.

        Raises TypeError for other tensors.
        """
        if x.dtype != torch.float32 or x.device.type != "cpu" or x.dim() != 1 or not x.is_contiguous():
            raise TypeError(
                f"ring: expected a contiguous float32 vector in host memory, not {x.dtype} {tuple(x.shape)} "
                f"on {x.device}"
            )
        if self._comm.size == 1:
            x.detach().mul_(weight)
        else:
            num_chunks = chunks_of_segment(-(-len(x) // self._comm.size), self._chunk)
            self._make_buffers(-(-len(x) // (self._comm.size * num_chunks)) + 1)
            self._run(
                x.detach(),
                weight,
                hops(self._comm.rank, self._comm.size, len(x), num_chunks),
                min(IN_FLIGHT, num_chunks),
            )
        return x

    def _run(self, x: torch.Tensor, weight: float, all_hops: list[_Hop], in_flight: int) -> None:
        """Run the hops. A received chunk is sent on as many hops later as a segment has chunks, which limits
        the number in flight."""
        pending: deque[tuple] = deque()
        for number, hop in enumerate(all_hops):
            if len(pending) == in_flight:
                self._finish(x, weight, *pending.popleft())
            pending.append((hop, *self._start(x, weight, hop, number % in_flight)))
        while pending:
            self._finish(x, weight, *pending.popleft())

    def _make_buffers(self, length: int) -> None:
        if self._sent.shape[-1] < length:
            self._sent, self._received = (torch.empty(IN_FLIGHT, length, dtype=self._dtype) for _ in range(2))

    def _start(self, x: torch.Tensor, weight: float, hop: _Hop, place: int):
        """(function that waits for the chunk, buffer in which it arrives). Uses the buffers at `place`."""
        outgoing, incoming = x[hop.outgoing], x[hop.incoming]
        if hop.step == 0:
            outgoing.mul_(weight)
        if self._narrows:
            narrow = self._sent[place, : len(outgoing)].copy_(outgoing)
            if hop.step == self._comm.size - 1:  # round the own sum as the other ranks receive it
                outgoing.copy_(narrow)
            outgoing = narrow
        if self._narrows or hop.step < self._comm.size - 1:
            incoming = self._received[place, : len(incoming)]
        return self._comm.start_exchange(outgoing, self._right, incoming, self._left), incoming

    def _finish(self, x: torch.Tensor, weight: float, hop: _Hop, wait, received: torch.Tensor) -> None:
        wait()
        own = x[hop.incoming]
        if hop.step < self._comm.size - 1:
            own.mul_(weight).add_(received)
        elif self._narrows:
            own.copy_(received)


def chunks_of_segment(length: int, chunk: int) -> int:
    """Number of chunks of a segment: none above `chunk` elements, and several in flight unless they would be
    tiny."""
    return max(-(-length // chunk), min(IN_FLIGHT, length // SMALL_CHUNK), 1)


def hops(rank: int, size: int, length: int, num_chunks: int) -> list[_Hop]:
    """The chunks that a rank sends and receives, in order; segments and chunks may be empty."""
    segments = spans(0, length, size)
    chunks = [spans(segment.start, segment.stop, num_chunks) for segment in segments]
    return [
        _Hop(step, outgoing, incoming)
        for step in range(2 * (size - 1))
        for outgoing, incoming in zip(chunks[(rank - step) % size], chunks[(rank - step - 1) % size])
    ]


def spans(begin: int, end: int, num: int) -> list[slice]:
    """Split [begin, end) into `num` parts whose lengths differ by at most 1."""
    bounds = [begin + (end - begin) * i // num for i in range(num + 1)]
    return [slice(*pair) for pair in zip(bounds, bounds[1:])]
