r"""How parameters travel between ranks: as float32, or in 16 bits, which halves the messages.

Nobody's parameters are ever rounded to 16 bits, only what they differ by from the *base* b: parameters that all ranks have had, those after
the last mixing that left all equal. With x_r the parameters of rank r, w_r its weight and q the rounding, float32 otherwise:

    sum over all ranks            W b + sum_r w_r q(x_r - b),                 W = sum_r w_r          (1)
    what r sees of x_s            x_r + (q(x_s - b) - q(x_r - b))                                    (2)
    a move d, from one to one     q(d)                                                               (3)

Without rounding these are sum_r w_r x_r, x_s and d, and for float32 they are computed so. Errors are relative to moves, not to parameters:
numbers near 1000 may move by 0.001, where bfloat16 has none between 1000 and 1004.

(1) goes around a ring (`pyasr.parallel.ring`) that rounds partial sums too, with an error up to P u sum_r |w_r (x_r - b)|, where u is 2^-8
for bfloat16 and 2^-11 for float16; all ranks get the same bits. In (2) what r gains by s is what s loses by r, exactly, whatever q is: a
mixing x_r <- x_r + sum_s W_rs (x_s - x_r) by a doubly stochastic W leaves the mean over ranks where it is, to the rounding of float32.
Such mixings bring ranks no nearer to each other than about u |x_r - b|; b is renewed whenever all are equal.

bfloat16 has the range of float32. float16 ends at 65504 and loses bits below 2^-14, so its numbers are scaled by a power of two, 2^k with
the greatest one in [2^14, 2^15): numbers down to 2^-28 of the greatest keep all 11 bits. In (1) the greatest is that of all ranks, one more
all-reduce of a single number, times W, which no partial sum exceeds. In (2) and (3) it is the sender's own, and k travels as the message's
last number. Where a number is infinite or none, k = 0 and it arrives as such.

The consensus, parameters that are given to a rank, and those of a node's ranks among themselves are float32 always.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyasr.parallel.strategies.options import SchemeOptions

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.comm import Comm
    from pyasr.parallel.host_copy import HostCopy

_GREATEST = 15  # float16 numbers are scaled to below 2^15
_MOST = 126  # 2^-126 is the least normal float32
_BLOCK = 1 << 17  # numbers that stay near the processor while several things are done with them


class Wire:
    """Parameters and moves between the ranks of `comm`: contiguous float32 vectors in host memory.

    base  b; None for float32, and before `agree`
    """

    def __init__(self, comm: Comm, options: SchemeOptions):
        self.comm, self.base, self._payload, self._offered = comm, None, options.payload, None
        self._narrows = options.payload != "float32" and comm.size > 1
        self._uses_ring = options.all_reduce == "ring"
        self._sent = self._received = None

    @functools.cached_property
    def _ring(self) -> Callable:
        """The sum over ranks in float32 that does not need the MPI library."""
        return _ring_of(self.comm, "float32")

    @functools.cached_property
    def _narrow_ring(self) -> Callable:
        return _ring_of(self.comm, self._payload)

    @functools.cached_property
    def _block(self) -> torch.Tensor:
        return _empty(_BLOCK, "float32")

    @functools.cached_property
    def host(self) -> HostCopy:
        """By which vectors of a GPU come into host memory and go back."""
        from pyasr.parallel.host_copy import HostCopy  # here, because it imports torch; see `base`

        return HostCopy()

    @property
    def adds_pieces(self) -> bool:
        """Whether the sum of a vector is put together, in every bit, from those of its pieces: in pieces, ranks may be added in another
        order than in the whole, which with two of them is the same."""
        return self.comm.size <= 2 and not self._narrows

    def agree(self, x: torch.Tensor) -> None:
        """All ranks have these parameters, on any device: the base."""
        if not self._narrows:
            return
        if self.base is None or self.base.shape != x.shape:
            self.base = x.new_empty(x.shape, device="cpu")
        self.base.copy_(x)

    def restore(self, base: torch.Tensor | None) -> None:
        """Go on with another wire's base; if that had none, with rank 0's. Every rank must call this alike."""
        if base is not None:
            self.agree(base)
        elif self.base is not None:
            self.comm.bcast(self.base)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Replace `x` by the mean over ranks, in float32; returns it."""
        return self._ring(x, 1 / self.comm.size) if self._uses_ring else self.comm.allreduce(x, "mean")

    def sum(self, x: torch.Tensor, weight: float, total: float) -> torch.Tensor:
        """Replace parameters `x` by (1); `total` is W. Returns them."""
        if not self._narrows:
            return self.sum_moves(x, weight, total)
        return self.sum_moves(x.sub_(self.base), weight, total).add_(self.base, alpha=total)

    def sum_moves(self, x: torch.Tensor, weight: float, total: float) -> torch.Tensor:
        """Replace moves `x` by their sum with the ranks' weights, all positive or 0, which add up to `total`. Returns it."""
        if not self._narrows:
            return self._ring(x, weight) if self._uses_ring else self.comm.allreduce(x if weight == 1 else x.mul_(weight))
        exponent = self._exponent(total * self.comm.reduce_scalar(greatest(x), "max")) if self._is_scaled else 0
        self._narrow_ring(x, weight * 2.0**exponent)
        return x.mul_(2.0**-exponent) if exponent else x

    def offer(self, x: torch.Tensor) -> None:
        """Have parameters ready for one `exchange` or more, until when they must be left alone."""
        self._offered = x
        if self._narrows:
            self._make_buffers(len(x))
            self._pack(self._sent, x, self.base)

    def exchange(self, to: int, incoming: torch.Tensor, source: int) -> torch.Tensor:
        """Send what was offered to one rank; `incoming` becomes what another has offered, as this one sees it: (2). Returns it."""
        if not self._narrows:
            self.comm.exchange(self._offered, to, incoming, source)
            return incoming
        self.comm.exchange(self._sent, to, self._received, source)
        for part, difference in self._differences(self._received, self._sent, len(incoming)):
            incoming[part].copy_(difference).add_(self._offered[part])
        return incoming

    def message(self, length: int) -> torch.Tensor:
        """Memory for so many parameters on their way from one rank to another."""
        return _empty(length + self._narrows, self._payload if self._narrows else "float32")

    def pack(self, x: torch.Tensor, message: torch.Tensor) -> None:
        """Write parameters into a `message`, which one rank sends and another compares with its own by `add_difference`."""
        if self._narrows:
            self._pack(message, x, self.base)
        else:
            message.copy_(x)

    def add_difference(self, total: torch.Tensor, theirs: torch.Tensor, ours: torch.Tensor, weight: float) -> None:
        """Add `weight` times what another's parameters, seen by (2), differ by from this rank's own, from the messages of both."""
        for part, difference in self._differences(theirs, ours, len(total)):
            total[part].add_(difference, alpha=weight)

    def send_move(self, move: torch.Tensor, to: int, tag: int) -> None:
        """As `Comm.send`, (3)."""
        if self._narrows:
            self._make_buffers(len(move))
            self._pack(self._sent, move)
        self.comm.send(self._sent if self._narrows else move, to, tag)

    def receive_move(self, move: torch.Tensor, tag: int, source: int) -> None:
        """As `Comm.receive`, of what `send_move` has sent."""
        if not self._narrows:
            self.comm.receive(move, tag, source)
            return
        self._make_buffers(len(move))
        self.comm.receive(self._received, tag, source)
        move.copy_(self._received[:-1]).mul_(2.0 ** -int(self._received[-1]))

    @property
    def _is_scaled(self) -> bool:
        return self._payload == "float16"

    @staticmethod
    def _exponent(largest: float) -> int:
        """k for float16 numbers up to `largest`; 0 where there is nothing to scale."""
        if largest == 0 or not math.isfinite(largest):
            return 0
        return min(_GREATEST - math.frexp(largest)[1], _MOST)

    def _make_buffers(self, length: int) -> None:
        if self._sent is None or len(self._sent) != length + 1:
            self._sent, self._received = (_empty(length + 1, self._payload) for _ in range(2))

    def _pack(self, message: torch.Tensor, x: torch.Tensor, base: torch.Tensor | None = None) -> None:
        """q(x - base) into `message`, without a base q(x)."""
        exponent = self._exponent(max(greatest(moves) for _, moves in self._moves(x, base))) if self._is_scaled else 0
        for part, moves in self._moves(x, base):
            message[part].copy_(moves.mul_(2.0**exponent) if exponent else moves)
        message[-1] = exponent

    def _moves(self, x: torch.Tensor, base: torch.Tensor | None) -> Iterator[tuple[slice, torch.Tensor]]:
        """(part, x - base there, which may be changed and lasts until the next)."""
        for part in blocks(len(x)):
            moves = self._block[: part.stop - part.start]
            moves.copy_(x[part])
            yield part, moves if base is None else moves.sub_(base[part])


    def _differences(self, theirs: torch.Tensor, ours: torch.Tensor, length: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """(part, parameters of one message less those of another there, which may be changed and last until the next)."""
        scales = [2.0 ** -int(message[-1]) if self._narrows else 1.0 for message in (theirs, ours)]
        for part in blocks(length):
            difference = self._block[: part.stop - part.start]
            yield part, difference.copy_(theirs[part]).mul_(scales[0]).sub_(ours[part], alpha=scales[1])


def _ring_of(comm: Comm, payload: str) -> Callable:
    from pyasr.parallel.ring import RingAllreduce  # here, because it imports torch; see `base`

    return RingAllreduce(comm, payload)


def _empty(length: int, payload: str) -> torch.Tensor:
    """Memory for so many numbers of a type."""
    import torch  # here, see `base`

    return torch.empty(length, dtype=getattr(torch, payload))


def blocks(length: int) -> list[slice]:
    """[0, length) in parts of up to `_BLOCK`; at least one, which may be empty."""
    return [slice(begin, min(begin + _BLOCK, length)) for begin in range(0, max(length, 1), _BLOCK)]


def greatest(x: torch.Tensor) -> float:
    """The greatest magnitude in `x`, 0 if it is empty; infinite where a number is none, so that ranks agree on the maximum."""
    if not len(x):
        return 0.0
    least, most = x.aminmax()
    largest = max(-float(least), float(most))
    return math.inf if math.isnan(largest) else largest
