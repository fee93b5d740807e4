"""Work of the ranks of test_slow_network, one per host: `python -m mpi4py host_workers.py`."""

from pathlib import Path

import numpy as np

from pyasr.parallel.communication.mpi_comm import MpiComm

LENGTH, MBIT_PER_S = 1_250_000, 100
OVERHEAD = 1.2  # header bytes of packets


def bytes_sent() -> int:
    """Bytes that this host has sent so far to others."""
    lines = (line.partition(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:])
    return sum(int(numbers.split()[8]) for name, _, numbers in lines if name.strip() != "lo")


def check_sum(comm) -> None:
    """A large sum uses the ring: every host sends no more than its part."""
    assert comm.spans_hosts and comm.split_by_host().size == 1
    numbers = np.arange(LENGTH, dtype=np.float32) % 1000
    comm.barrier()
    before = bytes_sent()
    total = comm.allreduce(numbers * (comm.rank + 1))
    comm.barrier()
    sent = bytes_sent() - before
    assert np.array_equal(total, numbers * (comm.size * (comm.size + 1) // 2))
    least = 2 * (comm.size - 1) / comm.size * total.nbytes
    assert least <= sent < OVERHEAD * least, (sent, least)
    assert "_ring" in vars(comm)


if __name__ == "__main__":
    check_sum(MpiComm())
