r"""Messages with parameters between ranks, as float32 or in 16-bit formats, which halve the messages.

Parameters are never rounded to 16 bits, only their differences from the *base* b. The base is a vector that
all ranks have had: the parameters after the last mixing that made all ranks equal. With x_r the parameters of
rank r, w_r its weight and q the rounding (float32 otherwise):

    sum over all ranks            W b + sum_r w_r q(x_r - b),                 W = sum_r w_r          (1)
    x_s as seen by r              x_r + (q(x_s - b) - q(x_r - b))                                    (2)
    a move d to one rank          q(d)                                                               (3)

Without rounding these are sum_r w_r x_r, x_s and d, which is how they are computed for float32. Errors are
relative to moves, not to parameters: a number near 1000 can move by 0.001, although bfloat16 has no number
between 1000 and 1004.

(1) is a ring all-reduce (`pyasr.parallel.communication.ring`) that also rounds partial sums. Its error is at
most P u sum_r |w_r (x_r - b)|, where u is 2^-8 for bfloat16 and 2^-11 for float16; the result is
bit-identical on all ranks. In (2), the change of r by s is exactly the opposite of the change of s by r,
whatever q is: a mixing x_r <- x_r + sum_s W_rs (x_s - x_r) by a doubly stochastic W preserves the mean over
ranks, up to float32 rounding. Such mixings reduce the distance between ranks to no less than about u |x_r -
b|; b is renewed whenever all ranks are equal.

bfloat16 has the range of float32. float16 ends at 65504 and loses bits below 2^-14, so its numbers are scaled
by a power of two, 2^k, that moves the largest one into [2^14, 2^15): numbers down to 2^-28 of the largest
keep all 11 bits. In (1) the largest is taken over all ranks, with one more all-reduce of a single number,
times W, which bounds all partial sums. In (2) and (3) it is the sender's own, and k is the last number of the
message. If a number is infinite or NaN, k = 0 and the number is transmitted as it is.

The consensus, parameters that a rank receives from a server, and messages between the ranks of a node are
always float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyasr.parallel.mixing.scheme_options import SchemeOptions

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm
    from pyasr.parallel.communication.host_copy import HostCopy

_MAX_EXPONENT = 15  # float16 numbers are scaled to below 2^15
_MAX_SHIFT = 126  # 2^-126 is the smallest normal float32
_BLOCK = 1 << 17  # numbers per block, which stays in the cache during several operations


class PayloadCodec:
    """Parameters and moves between the ranks of `comm`: contiguous float32 vectors in host memory.

    base  b; None for float32, and before `agree`
    """

    def __init__(self, comm: Comm, options: SchemeOptions):
        self.comm, self._payload = comm, options.payload
        self.base: torch.Tensor | None = None
        self._offered: torch.Tensor | None = None
        self._narrows = options.payload != "float32" and comm.size > 1
        self._uses_ring = options.all_reduce == "ring"
        self._sent: torch.Tensor | None = None
        self._received: torch.Tensor | None = None

    @functools.cached_property
    def _ring(self) -> Callable:
        """The float32 sum over ranks without the MPI library."""
        return _ring_of(self.comm, "float32")

    @functools.cached_property
    def _narrow_ring(self) -> Callable:
        return _ring_of(self.comm, self._payload)

    @functools.cached_property
    def _block(self) -> torch.Tensor:
        return _empty(_BLOCK, "float32")

    @functools.cached_property
    def host(self) -> HostCopy:
        """The copies between a GPU's memory and host memory."""
        # here, because it imports torch; see `base`
        from pyasr.parallel.communication.host_copy import HostCopy

        return HostCopy()

    @property
    def adds_pieces(self) -> bool:
        """Whether sums of pieces of a vector are bit-identical to the sum of the whole. The order of
        additions may differ in pieces, which has no effect with two ranks."""
        return self.comm.size <= 2 and not self._narrows

    def agree(self, x: torch.Tensor) -> None:
        """Set the base to these parameters, on any device, which are the same on all ranks."""
        if not self._narrows:
            return
        base = self.base
        if base is None or base.shape != x.shape:
            base = self.base = x.new_empty(x.shape, device="cpu")
        base.copy_(x)

    def restore(self, base: torch.Tensor | None) -> None:
        """Set the base to that of another wire, or broadcast rank 0's if there is none. Collective: the same
        call on every rank."""
        if base is not None:
            self.agree(base)
        elif self.base is not None:
            self.comm.bcast(self.base)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Replace `x` by the mean over ranks, in float32, and return it."""
        return self._ring(x, 1 / self.comm.size) if self._uses_ring else self.comm.allreduce(x, "mean")

    def sum(self, x: torch.Tensor, weight: float, total: float) -> torch.Tensor:
        """Replace parameters `x` by (1) and return them; `total` is W."""
        if not self._narrows:
            return self.sum_moves(x, weight, total)
        return self.sum_moves(x.sub_(self.base), weight, total).add_(self.base, alpha=total)

    def sum_moves(self, x: torch.Tensor, weight: float, total: float) -> torch.Tensor:
        """Replace moves `x` by their sum with the ranks' weights, which are not negative and add up to
        `total`, and return it."""
        if not self._narrows:
            return (
                self._ring(x, weight)
                if self._uses_ring
                else self.comm.allreduce(x if weight == 1 else x.mul_(weight))
            )
        exponent = (
            self._exponent(total * self.comm.reduce_scalar(greatest(x), "max")) if self._is_scaled else 0
        )
        self._narrow_ring(x, weight * 2.0**exponent)
        return x.mul_(2.0**-exponent) if exponent else x

    def offer(self, x: torch.Tensor) -> None:
        """Prepare parameters for calls of `exchange`; they must not change until these are done."""
        self._offered = x
        if self._narrows:
            self._make_buffers(len(x))
            self._pack(self._sent, x, self.base)

    def exchange(self, to: int, incoming: torch.Tensor, source: int) -> torch.Tensor:
        """Send the offered parameters to rank `to`; fill `incoming` by those that `source` has offered, as
        seen by (2), and return it."""
        offered = self._offered
        assert offered is not None
        if not self._narrows:
            self.comm.exchange(offered, to, incoming, source)
            return incoming
        self.comm.exchange(self._sent, to, self._received, source)
        for part, difference in self._differences(self._received, self._sent, len(incoming)):
            incoming[part].copy_(difference).add_(offered[part])
        return incoming

    def message(self, length: int) -> torch.Tensor:
        """A buffer for the message of a vector of this length."""
        return _empty(length + self._narrows, self._payload if self._narrows else "float32")

    def pack(self, x: torch.Tensor, message: torch.Tensor) -> None:
        """Write parameters into a `message`, for `add_difference` on another rank."""
        if self._narrows:
            self._pack(message, x, self.base)
        else:
            message.copy_(x)

    def add_difference(
        self, total: torch.Tensor, theirs: torch.Tensor, ours: torch.Tensor, weight: float
    ) -> None:
        """Add `weight` times the difference (2) of another rank's parameters from this rank's, given the
        messages of both."""
        for part, difference in self._differences(theirs, ours, len(total)):
            total[part].add_(difference, alpha=weight)

    def send_move(self, move: torch.Tensor, to: int, tag: int) -> None:
        """Send a move, (3); see `Comm.send`."""
        if self._narrows:
            self._make_buffers(len(move))
            self._pack(self._sent, move)
        self.comm.send(self._sent if self._narrows else move, to, tag)

    def receive_move(self, move: torch.Tensor, tag: int, source: int) -> None:
        """Receive a move sent by `send_move`; see `Comm.receive`."""
        if not self._narrows:
            self.comm.receive(move, tag, source)
            return
        self._make_buffers(len(move))
        received = self._received
        assert received is not None
        self.comm.receive(received, tag, source)
        move.copy_(received[:-1]).mul_(2.0 ** -int(received[-1]))

    @property
    def _is_scaled(self) -> bool:
        return self._payload == "float16"

    @staticmethod
    def _exponent(largest: float) -> int:
        """k for float16 numbers up to `largest`; 0 if scaling is not possible."""
        if largest == 0 or not math.isfinite(largest):
            return 0
        return min(_MAX_EXPONENT - math.frexp(largest)[1], _MAX_SHIFT)

    def _make_buffers(self, length: int) -> None:
        if self._sent is None or len(self._sent) != length + 1:
            self._sent, self._received = (_empty(length + 1, self._payload) for _ in range(2))

    def _pack(self, message: torch.Tensor, x: torch.Tensor, base: torch.Tensor | None = None) -> None:
        """Write q(x - base), or q(x) without a base, into `message`."""
        exponent = (
            self._exponent(max(greatest(moves) for _, moves in self._moves(x, base)))
            if self._is_scaled
            else 0
        )
        for part, moves in self._moves(x, base):
            message[part].copy_(moves.mul_(2.0**exponent) if exponent else moves)
        message[-1] = exponent

    def _moves(self, x: torch.Tensor, base: torch.Tensor | None) -> Iterator[tuple[slice, torch.Tensor]]:
        """(part, x - base in this part), a buffer, which may be changed, valid until the next iteration."""
        for part in blocks(len(x)):
            moves = self._block[: part.stop - part.start]
            moves.copy_(x[part])
            yield part, moves if base is None else moves.sub_(base[part])

    def _differences(
        self, theirs: torch.Tensor, ours: torch.Tensor, length: int
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """(part, difference of two messages in this part), a buffer that may be changed and is valid until
        the next iteration."""
        scales = [2.0 ** -int(message[-1]) if self._narrows else 1.0 for message in (theirs, ours)]
        for part in blocks(length):
            difference = self._block[: part.stop - part.start]
            yield part, difference.copy_(theirs[part]).mul_(scales[0]).sub_(ours[part], alpha=scales[1])


def _ring_of(comm: Comm, payload: str) -> Callable:
    from pyasr.parallel.communication.ring import RingAllreduce  # here, because it imports torch; see `base`

    return RingAllreduce(comm, payload)


def _empty(length: int, payload: str) -> torch.Tensor:
    """A vector of this length and type, uninitialised."""
    import torch  # here, see `base`

    return torch.empty(length, dtype=getattr(torch, payload))


def blocks(length: int) -> list[slice]:
    """Split [0, length) into parts of up to `_BLOCK`; at least one, which may be empty."""
    return [slice(begin, min(begin + _BLOCK, length)) for begin in range(0, max(length, 1), _BLOCK)]


def greatest(x: torch.Tensor) -> float:
    """The maximum magnitude in `x`; 0 if it is empty, infinite if a number is NaN, so that ranks agree on the
    maximum."""
    if not len(x):
        return 0.0
    least, most = x.aminmax()
    largest = max(-float(least), float(most))
    return math.inf if math.isnan(largest) else largest
