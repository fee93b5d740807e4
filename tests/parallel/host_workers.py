"""What ranks of test_slow_network do, each alone on its host: `python -m mpi4py host_workers.py`."""

import time

import numpy as np

from pyasr.parallel.comm import MpiComm

LENGTH, MBIT_PER_S = 1_250_000, 100


def check_sum(comm) -> None:
    """A large sum goes around the ring, no faster than the links carry it."""
    assert comm.spans_hosts and comm.split_by_host().size == 1
    numbers = np.arange(LENGTH, dtype=np.float32) % 1000
    comm.barrier()
    begin = time.perf_counter()
    total = comm.allreduce(numbers * (comm.rank + 1))
    seconds = time.perf_counter() - begin
    assert np.array_equal(total, numbers * (comm.size * (comm.size + 1) // 2))
    least = 2 * (comm.size - 1) / comm.size * total.nbytes * 8 / (MBIT_PER_S * 1e6)
    assert 0.9 * least < seconds < 20 * least, (seconds, least)
    assert "_ring" in vars(comm)


if __name__ == "__main__":
    check_sum(MpiComm())
