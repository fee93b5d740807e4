"""Communicators (and the ring all-reduce over MPI) against plain sums: single process, threads, and real MPI
ranks."""

import threading

import numpy as np
import pytest
from collectives import check_all

from pyasr.base.cli.job_options import JobOptions
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads


def test_single_process_passes_all_checks():
    check_all(SoloComm())


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_threads_pass_all_checks(size):
    run_threads(size, check_all)


def test_mpi_ranks_pass_all_checks(tmp_path, jobs_import_tests):
    """Groups of 1 to 8 real ranks; for strategies, shards have 10, 10, 3, 0 utterances, and so on."""
    run_ranks(JobOptions(), tmp_path / "comm.log", "rank_workers:everything_in_groups", JobOptions(), 8)


def test_thread_sums_are_reproducible():
    """Floating-point sums depend on their order. Threads are summed in rank order."""
    parts = np.random.default_rng(1).normal(size=(6, 1000)).astype(np.float32)
    sums = [run_threads(6, lambda comm: comm.allreduce(parts[comm.rank].copy()))[0] for _ in range(3)]
    assert np.array_equal(sums[0], sums[1]) and np.array_equal(sums[0], sums[2])


def test_exception_in_thread_ends_others_and_names_rank():
    def work(comm):
        group = comm.split(comm.rank % 2)
        if comm.rank == 2:
            raise ZeroDivisionError("no frames")
        group.barrier()
        comm.barrier()

    begin = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="no frames"):
        run_threads(4, work)
    assert threading.active_count() == begin


def test_common_messages_are_logged_by_rank_0_only(caplog):
    with caplog.at_level("INFO", "pyasr"):
        run_threads(3, lambda comm: comm.log(f"said by rank {comm.rank}"))
    assert caplog.messages == ["said by rank 0"]
