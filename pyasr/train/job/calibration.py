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


def single_rank_frames_per_s(
    learner: AnyLearner, data: Frames | Utterances, minibatch: int, rate: float, comm: Comm
) -> float:
    """Frames per second of the first rank that has frames. This rank learns from its largest minibatch while
    the others wait, and restores its state afterwards. Every rank must call this.

    rate  learning rate of the steps, for gradients summed over the minibatch

    Work that a learner does only in some minibatches, such as updates of natural gradient, counts as often as
    in a long training, because whole cycles (`Learner.skip_warm_up`) are timed. The fastest cycle counts,
    because the machine may have other work. The first minibatch is not timed. Then cycles follow until they
    have taken half a second, at most ten of them. Of a cycle of more than 40 minibatches, only 40 are timed.
    The measurement takes at most half a second and the time of 41 minibatches. With natural gradient at its
    defaults, on a slow machine, it takes 5 minibatches.
    """
    found = np.zeros(1)
    timed_rank = int(comm.reduce_scalar(comm.rank if data.num_frames else comm.size, "min"))
    if comm.rank == timed_rank:
        largest = data.largest(minibatch)
        assert largest is not None  # this rank has frames
        x, targets = largest
        found[0] = _speed(learner, x, targets, rate)
        for rank in range(comm.size):
            if rank != timed_rank:
                comm.send(found, rank, _TAG)
    elif timed_rank < comm.size:
        comm.receive(found, _TAG, timed_rank)
    return float(found[0])


def _speed(learner: AnyLearner, x, targets, rate: float) -> float:
    def seconds(num_steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(num_steps):
            learner.step(x, targets, rate).cpu()  # waits for the device
        return time.perf_counter() - begin

    with _without_other_ranks(learner):
        seconds(1)  # initialisation that happens only once
        length = min(learner.skip_warm_up(), _MAX_STEPS)
        cycles = [seconds(length)]
        while len(cycles) < _MAX_CYCLES and sum(cycles) < _SECONDS:
            cycles.append(seconds(length))
        return length * targets.numel() / min(cycles)


@contextlib.contextmanager
def _without_other_ranks(learner: AnyLearner) -> Iterator[None]:
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
