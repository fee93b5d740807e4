"""The single-rank throughput, the baseline of the speed-up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pyasr.train.job.memory_check import unchanged

if TYPE_CHECKING:
    from pyasr.parallel.communication.comm import Comm
    from pyasr.train.data.minibatch_stream import Frames
    from pyasr.train.minibatches.whole_utterances import Utterances
    from pyasr.train.sgd.any_learner import AnyLearner

_TAG = 7
_SECONDS, _MAX_CYCLES, _MAX_STEPS = 0.5, 10, 40


def frames_per_s_alone(
    learner: AnyLearner, data: Frames | Utterances, minibatch: int, rate: float, comm: Comm
) -> float:
    """Frames per second of the first rank that has frames. This rank learns from its largest minibatch while
    the others wait, and restores its state afterwards. Every rank must call this.

    rate  learning rate of the steps, for gradients summed over the minibatch

    Work that a learner does only in some minibatches, such as updates of natural gradient, counts as often as
    in a long training, because whole cycles (`Learner.settle`) are timed. The fastest cycle counts, because
    the machine may have other work. The first minibatch is not timed. Then cycles follow until they have
    taken half a second, at most ten of them. Of a cycle of more than 40 minibatches, only 40 are timed. The
    measurement takes at most half a second and the time of 41 minibatches. With natural gradient at its
    defaults, on a slow machine, it takes 5 minibatches.
    """
    found = np.zeros(1)
    runner = int(comm.reduce_scalar(comm.rank if data.num_frames else comm.size, "min"))
    if comm.rank == runner:
        largest = data.largest(minibatch)
        assert largest is not None  # this rank has frames
        x, targets = largest
        found[0] = _speed(learner, x, targets, rate)
        for rank in range(comm.size):
            if rank != runner:
                comm.send(found, rank, _TAG)
    elif runner < comm.size:
        comm.receive(found, _TAG, runner)
    return float(found[0])


def _speed(learner: AnyLearner, x, targets, rate: float) -> float:
    def seconds(num_steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(num_steps):
            learner.step(x, targets, rate).cpu()  # waits for the device
        return time.perf_counter() - begin

    with _by_itself(learner):
        seconds(1)  # initialisation that happens only once
        length = min(learner.settle(), _MAX_STEPS)
        cycles = [seconds(length)]
        while len(cycles) < _MAX_CYCLES and sum(cycles) < _SECONDS:
            cycles.append(seconds(length))
        return length * targets.numel() / min(cycles)


@contextlib.contextmanager
def _by_itself(learner: AnyLearner) -> Iterator[None]:
    """Within the block, steps of the learner need no other rank. At its end, the state of the learner is
    restored."""
    parameters = learner.flat.master.clone()
    if learner.gradient_sum:
        learner.gradient_sum.is_idle = True
    try:
        with unchanged(learner):
            yield
    finally:
        if learner.gradient_sum:
            learner.gradient_sum.is_idle = False
        learner.flat.master.copy_(parameters)
        learner.flat.refresh()
