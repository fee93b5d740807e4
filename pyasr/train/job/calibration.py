"""The speed of one rank by itself: the baseline of the speed-up."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from pyasr.train.job.memory_check import unchanged

if TYPE_CHECKING:
    from pyasr.parallel.communication.comm import Comm
    from pyasr.train.data.minibatch_stream import Frames
    from pyasr.train.sgd.learner import Learner

_TAG = 7
_SECONDS, _MOST_CYCLES, _MOST_STEPS = 0.5, 10, 40


def frames_per_s_alone(learner: Learner, data: Frames, minibatch: int, rate: float, comm: Comm) -> float:
    """Frames a second of the first rank that has any. It learns from its largest minibatch while the others wait, and forgets it. Every
    rank must call this.

    rate  of the steps, for gradients summed over the minibatch

    What a learner does in some minibatches only, such as updates of natural gradient, counts as often as in a long training: times are of
    whole cycles (`Learner.settle`), the fastest of which counts, as the machine may have other work. The first minibatch is not timed; then
    come cycles, until they have taken half a second, ten of them at most. A cycle has no more than 40 minibatches; of a longer one 40 are
    timed. So what is measured takes 41 minibatches and half a second at most, 5 with natural gradient at its defaults on a slow machine.
    """
    found = np.zeros(1)
    runner = int(comm.reduce_scalar(comm.rank if data.num_frames else comm.size, "min"))
    if comm.rank == runner:
        found[0] = _speed(learner, *data.largest(minibatch), rate)
        for rank in range(comm.size):
            if rank != runner:
                comm.send(found, rank, _TAG)
    elif runner < comm.size:
        comm.receive(found, _TAG, runner)
    return float(found[0])


def _speed(learner: Learner, x, targets, rate: float) -> float:
    def seconds(num_steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(num_steps):
            learner.step(x, targets, rate).cpu()  # which waits for the device
        return time.perf_counter() - begin

    with _by_itself(learner):
        seconds(1)  # what is made once for all is made now
        length = min(learner.settle(), _MOST_STEPS)
        cycles = [seconds(length)]
        while len(cycles) < _MOST_CYCLES and sum(cycles) < _SECONDS:
            cycles.append(seconds(length))
        return length * targets.numel() / min(cycles)


@contextlib.contextmanager
def _by_itself(learner):
    """Have steps of a learner need no other rank, and leave nothing behind."""
    parameters = learner.flat.master.clone()
    if learner.gradient_sum:
        learner.gradient_sum.rests = True
    try:
        with unchanged(learner):
            yield
    finally:
        if learner.gradient_sum:
            learner.gradient_sum.rests = False
        learner.flat.master.copy_(parameters)
        learner.flat.refresh()
