"""What a mixing strategy is, and the register of all of them.

A strategy sees `(master, frames)` after every minibatch and decides when, and with whom, this rank's parameters are mixed. The training
loop knows none by name. A new scheme is one module in this package:

    @register("ring")
    class Ring(Strategy): ...
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.parallel.comm import Comm

_REGISTER: dict[str, type] = {}


@dataclass(frozen=True)
class MixingOptions:
    """How the ranks of a training job share what they learn."""

    strategy: str = option("allreduce", "how ranks mix their parameters: allreduce = periodic average over all ranks")
    period_frames: int = option(10240, "frames that a rank sees between two mixings", minimum=1)


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

    vote   what this rank wishes (the loop: a checkpoint); it travels with the next mixing
    times  seconds spent so far in waiting for other ranks, and in mixing, float64 (2,)
    """

    def __init__(self, comm: Comm, options: MixingOptions):
        self.comm, self.options, self.vote = comm, options, False
        self.times = np.zeros(2)

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Tell of `frames` more frames trained on; None, or what came of a mixing, which has changed `master` in place."""
        raise NotImplementedError

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


def register(name: str):
    """Class decorator: make a strategy known as `name`."""

    def add(cls):
        _REGISTER[name] = cls
        return cls

    return add


def strategy_names() -> list[str]:
    """All registered names; imports every module of this package once."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return sorted(_REGISTER)


def check_strategy(options: MixingOptions) -> None:
    """Raise UserError unless `options.strategy` is registered."""
    names = strategy_names()
    if options.strategy not in names:
        raise UserError(f"--strategy '{options.strategy}': there is no such strategy; choose one of {', '.join(names)}")


def make_strategy(comm: Comm, options: MixingOptions) -> Strategy:
    """The strategy that `options.strategy` names."""
    check_strategy(options)
    return _REGISTER[options.strategy](comm, options)
