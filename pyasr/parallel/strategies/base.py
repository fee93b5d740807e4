"""What a mixing strategy is.

A strategy sees `(master, frames)` after every minibatch and decides when, and with whom, this rank's parameters are mixed. The training
loop knows none by name. A new scheme is one module in this package:

    @register("ring")
    class Ring(Strategy): ...
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from pyasr.base.options import option
from pyasr.parallel.comm import Comm

REGISTER: dict[str, type] = {}


@dataclass(frozen=True)
class MixingOptions:
    """How the ranks of a training job share what they learn."""

    strategy: str = option("allreduce", "how ranks mix their parameters: allreduce = periodic average over all ranks")
    period_frames: int = option(10240, "frames that a rank sees between two mixings", minimum=1)
    first_mixing: str = option("mix", "first mixing of a network that is new or has grown; best: take the parameters of the rank with the "
                               "best objective, and train by half minibatches until then", choices=("mix", "best"))  # fmt: skip


class Mixing(NamedTuple):
    """What one mixing told this rank.

    frames  that all ranks had seen since the last one; 0: nobody has data left
    votes   ranks whose `Strategy.vote` was set
    """

    frames: int
    votes: int = 0


class Strategy:
    """Base of all strategies.

    Every rank calls `step` after each of its minibatches, and then, out of data, `step(master, 0)` until a mixing of 0 frames comes
    back: so shards may be uneven, and all ranks take part in the same number of collectives.

    vote       what this rank wishes (the loop: a checkpoint); it travels with the next mixing
    compares   whether the next mixing is to choose between the ranks' parameters, which are too new to be mixed
    objective  function that gives this rank's objective, a frame, since `compares` became true; the loop sets it
    times      seconds spent so far in waiting for other ranks, and in mixing, float64 (2,)
    """

    objective: Callable[[], float] | None = None

    def __init__(self, comm: Comm, options: MixingOptions):
        self.comm, self.options, self.vote, self.compares = comm, options, False, False
        self.times = np.zeros(2)

    def restart(self) -> None:
        """All ranks have a new network, or one that has grown; what was remembered of its parameters is no longer true."""

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Tell of `frames` more frames trained on; None, or what came of a mixing, which has changed `master` in place."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """What this rank remembers between two mixings, as tensors and plain values for a checkpoint, which is made just after one."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""

    def waiting(self, function, *arguments):
        """`function(*arguments)`, its time taken for waiting."""
        return self._timed(0, function, *arguments)

    def mixing(self, function, *arguments):
        """`function(*arguments)`, its time taken for mixing."""
        return self._timed(1, function, *arguments)

    def _timed(self, kind: int, function, *arguments):
        begin = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.times[kind] += time.perf_counter() - begin


def finish_on_device(master: torch.Tensor) -> None:
    """Wait for what the device has still to do, so that its time is not taken for that of a message."""
    if master.is_cuda:
        torch.cuda.synchronize(master.device)


def in_host_memory(master: torch.Tensor, communicate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let `communicate` change `master` in place; parameters on another device travel through host memory."""
    if master.device.type == "cpu":
        communicate(master)
    else:
        master.copy_(communicate(master.cpu()))


def register(name: str):
    """Class decorator: make a strategy known as `name`."""

    def add(cls):
        REGISTER[name] = cls
        return cls

    return add
