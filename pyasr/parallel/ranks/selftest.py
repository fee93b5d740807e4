"""Test whether MPI works. Called by utils/check_install.py and the tests."""

from __future__ import annotations

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import Comm


def sum_of_ranks(spec, comm: Comm) -> None:
    """Add the ranks' numbers over all ranks and compare with the closed form."""
    total = comm.allreduce(np.array([comm.rank + 1.0]))[0]
    if total != comm.size * (comm.size + 1) / 2:
        raise UserError(f"{comm.size} ranks added 1, 2, ... and got {total}: this MPI does not match mpi4py")
    log.info(f"sum over {comm.size} ranks is correct")
