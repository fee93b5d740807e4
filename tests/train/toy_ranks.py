"""Toy trainings on real ranks."""

from pathlib import Path

import numpy as np
import torch
from toy_jobs import store, training, with_options

SHARDS = [10, 10, 3, 0, 7, 0, 1, 2]  # utterances
SIZES = (1, 2, 3, 4, 5, 8)


def train_groups(spec, comm):
    """The first of these ranks, in ever greater numbers, train by several schemes; rank 0 puts down how they end."""
    for size in SIZES:
        group = comm.split(int(comm.rank < size))
        if comm.rank < size:
            for scheme in ("allreduce", "fixed-ring"):
                verdict = _train(group, Path(spec.cmd) / f"{scheme}-{size}", scheme)
                if comm.rank == 0:
                    with (Path(spec.cmd) / "told").open("a") as f:
                        f.write(f"{scheme} {size}: {verdict}\n")
        _meet(comm, size)


def _train(comm, directory: Path, scheme: str) -> str:
    """`alike` where all ranks end with the same parameters after as many frames as there are."""
    options = with_options(mixing=dict(parallel=scheme, period_frames=48), schedule=dict(num_epochs=2, learning_rate=0.02))
    job = training(comm, directory, store(SHARDS[comm.rank], comm.rank), options)
    job.run()
    master = job.learner.flat.master.numpy()
    same = np.array_equal(comm.bcast(master.copy()), master) and bool(torch.isfinite(job.learner.flat.master).all())
    whole = job.position.frames_seen == 2 * 50 * sum(SHARDS[: comm.size])
    return "alike" if comm.reduce_scalar(same and whole, "min") == 1 else f"{same} {job.position.frames_seen}"


def _meet(comm, tag: int) -> None:
    """A barrier that leaves the processor to those who still train."""
    token = np.zeros(1)
    if comm.rank:
        comm.receive(token, tag, 0)
    else:
        for rank in range(1, comm.size):
            comm.send(token, rank, tag)
