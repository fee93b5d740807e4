"""Functions that the tests run as MPI ranks. Most of them fail."""

import os
import signal
import subprocess
import time
from pathlib import Path
from subprocess import DEVNULL

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.jobs.stop_request import StopRequested
from pyasr.liveness.heartbeat import Heartbeat, heartbeat_dir
from pyasr.liveness.rank_failures import RankFailure, append_failure, failure_file


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


def rank_one_killed_with_a_late_watchdog(spec, comm):
    """On a busy host, other watchdogs may report first."""
    if comm.rank == 1:
        _die_with_a_late_watchdog()
    comm.barrier()


def rank_one_killed_with_a_late_watchdog_and_missed(spec, comm):
    """Its message is lost, because MPI reads it from the rank's memory: an error on rank 0, at once."""
    message, process = np.zeros(1_000_000), comm.allgather(os.getpid())[1]
    if comm.rank == 1:
        comm.start_exchange(message, 0, np.empty_like(message), 0)
        _die_with_a_late_watchdog()
    if comm.rank == 0:
        while alive(process):
            time.sleep(0.01)
        comm.exchange(message, 1, np.empty_like(message), 1)
    comm.barrier()


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _die_with_a_late_watchdog():
    watchdog = os.getppid()
    os.kill(watchdog, signal.SIGSTOP)
    later = ["bash", "-c", f"sleep 1; kill -CONT {watchdog}"]
    subprocess.Popen(later, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def rank_one_killed_and_no_memory_kept(spec, comm):
    """The shared memory would stay until the host is rebooted, and block a job with the same name. Open MPI's
    own prterun removes it."""
    shared = [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/dev/shm/" in line and "/sm_segment." not in line
    ]
    assert all(line.endswith("(deleted)") for line in shared), shared
    rank_one_killed(spec, comm)


def rank_one_exits(spec, comm):
    if comm.rank == 1:
        raise SystemExit(0)
    comm.barrier()


def lost_before_the_end(spec, comm):
    """A node is lost, but mpiexec exits with status 0."""
    os._exit(0)


def watchdog_killed(spec, comm):
    """Without its watchdog, a failure of the rank would not be reported, so the rank ends with it."""
    _count(spec, comm)
    if comm.rank == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    comm.barrier()


def last_lost_until_alone(spec, comm):
    """Killed as the last of three ranks, stopped as the last of two."""
    _count(spec, comm)
    if comm.rank == comm.size - 1 > 0:
        print(f"rank {comm.rank} is process {os.getpid()}", flush=True)
        os.kill(os.getpid(), {3: signal.SIGKILL, 2: signal.SIGSTOP}[comm.size])
    if comm.size > 1:
        time.sleep(60)


def host_of_the_last_two_freezes(spec, comm):
    """Two of three ranks stop, their watchdogs before them. The remaining rank ends normally."""
    _count(spec, comm)
    if comm.size == 1:
        return
    if comm.rank:
        watchdog = os.getppid()
        Path(spec.cmd).joinpath(f"frozen.{comm.rank}").write_text(f"{watchdog} {os.getpid()}")
        os.kill(watchdog, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    comm.barrier()


def rank_zero_killed(spec, comm):
    _count(spec, comm)
    comm.barrier()
    if comm.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _count(spec, comm):
    if comm.rank == 0:
        with Path(spec.cmd).joinpath("attempts").open("a") as f:
            f.write(f"{comm.size}\n")
    comm.barrier()


def asked_to_end_and_lost_before_an_error(spec, comm):
    """The job runs again after the loss of a rank, and fails later with a user error."""
    job = Path(spec.cmd, "log", "x.spec.json")
    _count(spec, comm)
    if len(Path(spec.cmd, "attempts").read_text().splitlines()) == 1:
        if comm.rank == 0:
            Heartbeat(heartbeat_dir(job), 1).start("rank 1 of 2 on a node that was lost")
            append_failure(
                failure_file(job), RankFailure("rank 1 of 2 died without an error message", lost=True)
            )
        comm.barrier()
        raise StopRequested("saved at 70 frames")
    time.sleep(6)
    raise UserError("data/train/utt2spk: no such file")


def sleeps(spec, comm):
    Path(spec.cmd).joinpath(f"rank{comm.rank}.pid").write_text(str(os.getpid()))
    time.sleep(60)


def everything_in_groups(spec, comm):
    """The first of these ranks, in increasing numbers, run all checks; the others do not use the processor
    meanwhile."""
    from collectives import check_all  # not at the top, because they import torch
    from ring_sums import check_sums
    from uneven_shards import (
        check_minibatches_of_any_size,
        check_neighbours_do_not_wait,
        check_uneven,
        check_uneven_asynchronous,
        check_uneven_gradients,
        check_uneven_neighbours,
    )

    for size in (1, 2, 3, 4, 5, 8):
        _synchronise(comm, size)
        group = comm.split(int(comm.rank < size))
        if comm.rank < size:
            if size <= 3:
                check_all(group)
                check_sums(group)
            if size == 2:
                check_large_sums(group)
            check_uneven(group)
            if size > 1:
                check_uneven_gradients(group)
                check_minibatches_of_any_size(group)
            check_uneven_asynchronous(group)
            check_uneven_neighbours(group)
            if size > 3:
                check_neighbours_do_not_wait(group)


def _synchronise(comm, tag: int) -> None:
    """A barrier in which waiting ranks use no CPU time."""
    token, others = np.zeros(1), range(1, comm.size)
    if comm.rank:
        comm.send(token, 0, tag)
        comm.receive(token, tag, 0)
        return
    for rank in others:
        comm.receive(token, tag, rank)
    for rank in others:
        comm.send(token, rank, tag)


def check_large_sums(comm) -> None:
    """Ranks with shared memory use the ring for sums of 40 MB or more, the MPI library for smaller ones."""
    for length, by_ring in ((9_999_999, False), (10_000_000, True)):
        total = comm.allreduce(np.full(length, comm.rank + 1, np.float32))
        assert total[0] == total[-1] == 3 and ("_ring" in vars(comm)) == by_ring, length
