"""Functions that the tests run as jobs and ranks; most of them end badly."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError


def job_three_fails(spec, job):
    if job == 3:
        raise UserError("data/wav/a.wav: cut off after 512 bytes; fetch it again")


def print_job(spec, job):
    print(f"job {job} of {spec.nj}")


def rank_one_raises(spec, comm):
    if comm.rank == 1:
        raise ZeroDivisionError("no frames")
    comm.barrier()


def rank_one_user_error(spec, comm):
    if comm.rank == 1:
        raise UserError("exp/tri1/ali.2.gz: 17 frames where the features have 18; align again")
    comm.barrier()


def rank_one_killed(spec, comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def rank_one_exits(spec, comm):
    if comm.rank == 1:
        raise SystemExit(0)
    comm.barrier()


def lost_before_the_end(spec, comm):
    """As when a node is lost and mpiexec says 0 all the same."""
    os._exit(0)


def sleeps(spec, comm):
    Path(spec.cmd).joinpath(f"rank{comm.rank}.pid").write_text(str(os.getpid()))
    time.sleep(60)


def adds(spec, comm):
    total = comm.allreduce(np.full(3, comm.rank, np.float32))
    assert total.tolist() == [sum(range(comm.size))] * 3
