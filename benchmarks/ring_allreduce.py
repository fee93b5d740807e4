#!/usr/bin/env python3
"""Seconds of pyasr's ring all-reduce, with each of its message types, and of the MPI library's all-reduce;
the systems alternate.

Example:
    mpiexec -n 4 .venv/bin/python -m mpi4py benchmarks/ring_allreduce.py --millions 10
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.communication.mpi_comm import MpiComm
from pyasr.parallel.communication.ring import PAYLOAD_TYPES, RingAllreduce


@dataclass(frozen=True)
class Benchmark:
    millions: str = option("1,10,50", "sizes of the vector in millions of float32, separated by commas")
    num_rounds: int = option(7, "number of rounds", minimum=1)


def seconds_of(comm: Comm, reduce: Callable[[torch.Tensor], object], vector: torch.Tensor) -> float:
    """Seconds of one sum over ranks until all ranks have it; the result is checked."""
    vector.fill_(comm.rank + 1.0)
    comm.barrier()
    begin = comm.time()
    reduce(vector)
    comm.barrier()
    seconds = comm.time() - begin
    if not (vector == comm.size * (comm.size + 1) / 2).all():
        raise UserError("an all-reduce gave a wrong sum")
    return seconds


def measure(comm: Comm, millions: float, num_rounds: int) -> None:
    """Print a line per system: minimum and median time, and the speed relative to the library."""
    systems = {
        "library": comm.allreduce,
        **{f"ring, {payload}": RingAllreduce(comm, payload) for payload in PAYLOAD_TYPES},
    }
    vector = torch.empty(round(millions * 1e6))
    times = np.array(
        [[seconds_of(comm, reduce, vector) for reduce in systems.values()] for _ in range(num_rounds)]
    )
    if comm.rank == 0:
        best, median = times.min(axis=0), np.median(times, axis=0)
        for i, name in enumerate(systems):
            print(
                f"{comm.size} ranks  {millions:6g} M  {name:15s} best {1e3 * best[i]:8.1f} ms "
                f"({best[0] / best[i]:.2f}x)  median {1e3 * median[i]:8.1f} ms "
                f"({median[0] / median[i]:.2f}x)",
                flush=True,
            )


def main(options: Benchmark) -> None:
    try:
        sizes = [float(size) for size in options.millions.split(",")]
    except ValueError:
        raise UserError(f"--millions '{options.millions}': give numbers separated by commas") from None
    torch.set_num_threads(1)
    comm = MpiComm()
    for size in sizes:
        measure(comm, size, options.num_rounds)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
