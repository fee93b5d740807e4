"""Checks of the ring all-reduce for every communicator: all ranks know the vectors of all ranks and compare
with a float64 sum."""

import numpy as np
import torch

from pyasr.parallel.communication.ring import PAYLOAD_TYPES, RingAllreduce

UNIT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # relative error of rounding to nearest


def vectors(size: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(vector of each rank, weight of each rank). One rank has no data."""
    rng = np.random.default_rng((size, length))
    weights = rng.dirichlet(np.ones(size))
    weights[size // 2] *= size == 1
    return rng.standard_normal((size, length)).astype(np.float32), weights


def check_sums(comm) -> None:
    for payload in PAYLOAD_TYPES:
        reduce = RingAllreduce(comm, payload, chunk=200)
        for length in (0, 1, comm.size - 1, comm.size, 3 * comm.size + 1, 700 * comm.size + 7, 40):
            check_sum(comm, reduce, payload, length)
    check_sum(comm, RingAllreduce(comm), "float32", 400_001)


def check_sum(comm, reduce: RingAllreduce, payload: str, length: int) -> None:
    """The error is within the documented bound, and bits are the same on all ranks."""
    parts, weights = vectors(comm.size, length)
    mine = torch.from_numpy(parts[comm.rank].copy())
    assert reduce(mine, weights[comm.rank]) is mine
    terms = weights[:, None] * parts.astype(np.float64)
    bound = (
        comm.size * ((UNIT[payload] if comm.size > 1 else 0) + 2.0**-24) * 1.05 * np.abs(terms).sum(axis=0)
        + 2.0**-24 * comm.size
    )
    assert (np.abs(mine.numpy() - terms.sum(axis=0)) <= bound).all(), (payload, length)
    assert len(set(comm.allgather(mine.numpy().tobytes()))) == 1, (payload, length)
