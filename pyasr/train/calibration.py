"""How fast one rank learns by itself, which the speed of all of them is told against."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from pyasr.train.memory import unchanged

if TYPE_CHECKING:
    from pyasr.train.loop import Training

_TAG = 7
_SECONDS, _MOST_STEPS = 0.5, 10


def frames_per_s_alone(job: Training) -> float:
    """Frames a second of the first rank that has any, which learns for a moment from its largest minibatch while the others wait, and
    forgets it; by its fastest step, as the machine may have other work. Every rank must call this."""
    comm, found = job.comm, np.zeros(1)
    runner = int(comm.reduce_scalar(comm.rank if job.training.num_frames else comm.size, "min"))
    if comm.rank == runner:
        found[0] = _speed(job)
        for rank in range(comm.size):
            if rank != runner:
                comm.send(found, rank, _TAG)
    elif runner < comm.size:
        comm.receive(found, _TAG, runner)
    return float(found[0])


def _speed(job: Training) -> float:
    x, targets = job.largest_minibatch()
    rate = job.schedule.rate(job.position.frames_seen) * job.rate_factor

    def seconds() -> float:
        begin = time.perf_counter()
        job.learner.step(x, targets, rate).cpu()  # which waits for the device
        return time.perf_counter() - begin

    with _by_itself(job.learner):
        seconds()  # what is made once for all is made now
        steps = [seconds()]
        while len(steps) < _MOST_STEPS and sum(steps) < _SECONDS:
            steps.append(seconds())
        return targets.numel() / min(steps)


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
