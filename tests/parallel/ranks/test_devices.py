"""Assignment of GPUs to ranks: the choice itself, ranks as threads on simulated hosts, MPI ranks, and a real
GPU if there is one."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from pyasr.base.cli.job_options import JobOptions, RankJobOptions
from pyasr.base.cli.options import group
from pyasr.base.errors import UserError
from pyasr.base.host.device_lock import claim
from pyasr.base.host.granted_gpus import VARIABLE, granted_by_grid_engine
from pyasr.cluster.ranks.jobs import Recovery, run_ranks
from pyasr.cluster.runner.gpus import visible_gpus as gpus_for_jobs
from pyasr.nn.device import DeviceOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import ThreadComm, run_threads
from pyasr.parallel.ranks.devices import Gpu, choose, option_value, take_gpu
from pyasr.train.compute import ComputeOptions


@dataclass(frozen=True)
class Work:
    compute: DeviceOptions = group(DeviceOptions)
    jobs: JobOptions = group(JobOptions)


@pytest.mark.parametrize(
    "visible, chosen",
    [
        ([["a", "b", "c"]] * 3, [0, 1, 2]),
        ([["a", "b"]] * 4, [0, 1, 0, 1]),
        ([["a"], ["b"], ["c"]], [0, 0, 0]),
        ([["a", "b"], ["b", "a"]], [0, 0]),
        ([["b", "a"], ["b", "c"], ["a", "c"]], [0, 1, 0]),
        ([["a"], ["a", "b"]], [0, 1]),
    ],
)
def test_choice_of_gpus_per_rank(visible, chosen):
    """One list for all ranks, as from run.pl; one per rank, as from Slurm's --gpus-per-task; mixtures."""
    assert choose(visible) == chosen


def test_device_option_is_found_in_any_position():
    assert (
        option_value(Work(DeviceOptions("cuda"), JobOptions()), "device") == "cuda"
        and option_value(JobOptions(), "device") is None
    )


def on_hosts(hosts: list[str], gpus: dict[str, list[str]], monkeypatch, share=False, device="auto"):
    """(GPU of each rank, log messages) of ranks as threads on these hosts."""
    monkeypatch.setattr(
        "socket.gethostname", lambda: hosts[int(threading.current_thread().name.removeprefix("rank-"))]
    )
    monkeypatch.setattr(
        ThreadComm, "split_by_host", lambda comm: comm.split(sorted(set(hosts)).index(hosts[comm.rank]))
    )
    said = []
    monkeypatch.setattr(ThreadComm, "log", lambda comm, line: said.append(line) if comm.rank == 0 else None)

    def rank(comm):
        taken = []
        seen = [Gpu(uuid, "H200") for uuid in gpus[hosts[comm.rank]]]
        locks = take_gpu(
            comm,
            Work(DeviceOptions(device), JobOptions()),
            share,
            Path("x.log"),
            lambda: seen,
            taken.append,
            patience_s=0,
        )
        comm.barrier()
        for lock in locks:
            lock.release()
        return taken

    return run_threads(len(hosts), rank), said


def test_ranks_of_a_host_take_gpus_in_turn(monkeypatch):
    taken, said = on_hosts(["a", "b", "a", "a"], {"a": ["x", "y", "z"], "b": ["w"]}, monkeypatch)
    assert taken == [[0], [0], [1], [2]]
    assert said[2] == "rank 2 of 4 on a computes on GPU 1, H200 (y)" and len(said) == 4


@pytest.mark.parametrize("precision, is_tf32", [("tf32", True), ("float32", False), ("auto", False)])
def test_matmul_settings_are_applied_with_the_gpu(precision, is_tf32, monkeypatch):
    """torch's defaults differ: tf32 in cuDNN, and sums in bfloat16."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", not is_tf32)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not is_tf32)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", True)
    work = ComputeOptions(device="cuda", precision=precision)
    for lock in take_gpu(
        SoloComm(), work, False, Path("x.log"), lambda: [Gpu("x", "H200")], lambda number: None
    ):
        lock.release()
    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == is_tf32
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction


def test_gpu_sharing_needs_the_option(monkeypatch):
    hosts, gpus = ["a", "b", "b", "b"], {"a": ["x"], "b": ["y", "z"]}
    with pytest.raises(
        UserError,
        match=(
            r"^b: 3 ranks, but only 2 GPUs; .*--num-ranks.*--gpu 3.*--share-devices true, or give "
            r"--device cpu$"
        ),
    ):
        on_hosts(hosts, gpus, monkeypatch)
    assert on_hosts(hosts, gpus, monkeypatch, share=True)[0] == [[0], [0], [1], [0]]


def test_hosts_with_and_without_gpus_are_refused(monkeypatch):
    with pytest.raises(
        UserError,
        match="^b: no GPU, but other hosts have one; request GPUs on every host, or give --device cpu$",
    ):
        on_hosts(["a", "b"], {"a": ["x"], "b": []}, monkeypatch)


def test_no_gpu_is_taken_if_unwanted_or_absent(monkeypatch):
    assert on_hosts(["a", "a"], {"a": ["x"]}, monkeypatch, device="cpu") == ([[], []], [])
    assert on_hosts(["a", "a"], {"a": []}, monkeypatch) == ([[], []], ["all ranks compute on the CPU"])
    take_gpu(
        SoloComm(), JobOptions(), False, Path("x.log"), lambda: pytest.fail("nothing computes on a GPU here")
    )


def test_ranks_avoid_gpus_of_other_jobs(monkeypatch):
    """Another job has the second of four GPUs. If too few remain, the ranks of all hosts are refused and no
    GPU stays locked."""
    hosts, gpus = ["a", "a", "b"], {"a": ["x", "y", "z"], "b": ["w"]}
    (other,) = claim([["y"]], {}, Path("log/other.log"))
    assert on_hosts(hosts, gpus, monkeypatch)[0] == [[0], [2], [0]]
    with pytest.raises(
        UserError,
        match=(
            r"^GPU 1, H200 \(y\) is used by process \d+ on .*/log/other.log\); wait .*, or give --device "
            r"cpu$"
        ),
    ):
        on_hosts(["a", "a", "a", "b"], gpus, monkeypatch)
    assert on_hosts(["a", "a", "a", "b"], gpus, monkeypatch, share=True)[0] == [[0], [2], [1], [0]]
    other.release()
    assert on_hosts(["a", "a", "a", "b"], gpus, monkeypatch)[0] == [[0], [1], [2], [0]]


RANKS = """
import os, sys
from pyasr.parallel.ranks.devices import Gpu, take_gpu
taken = []
found = [Gpu("x", "H200"), Gpu("y", "H200")]
def take(comm, spec, share, log):
    return take_gpu(comm, spec, share, log, lambda: found, taken.append, patience_s=0)
sys.modules["__main__"].take_gpu = take
def has_taken(spec, comm): open(f"{os.environ['TAKEN']}.{comm.rank}", "w").write(str(taken))
"""


@pytest.fixture
def under_mpi(tmp_path, monkeypatch):
    """Function (ranks, share, cmd) that runs MPI ranks on a host with two simulated GPUs."""
    (tmp_path / "ranks_with_gpus.py").write_text(RANKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("TAKEN", str(tmp_path / "taken"))

    def run(num_ranks, share, cmd="run.pl"):
        recovery = Recovery(RankJobOptions(share_devices=share))
        run_ranks(
            JobOptions(cmd=cmd),
            tmp_path / "log" / "x.log",
            "ranks_with_gpus:has_taken",
            DeviceOptions(),
            num_ranks,
            recovery,
        )
        return [(tmp_path / f"taken.{rank}").read_text() for rank in range(num_ranks)]

    return run


def test_mpi_ranks_take_gpus(under_mpi):
    assert under_mpi(3, share=True) == ["[0]", "[1]", "[0]"]
    with pytest.raises(UserError, match=r"3 ranks, but only 2 GPUs"):
        under_mpi(3, share=False)


def test_mpi_ranks_avoid_gpus_of_other_job(under_mpi):
    (other,) = claim([["x"]], {}, Path("other.log"))
    assert under_mpi(1, share=False) == ["[1]"]
    with pytest.raises(
        UserError, match=r"GPU 0, H200 \(x\) is used by process \d+ on .*/other.log\); wait .* \(rank \d of 2"
    ):
        under_mpi(2, share=False)
    assert under_mpi(2, share=True) == ["[1]", "[0]"]
    other.release()
    assert under_mpi(2, share=False) == ["[0]", "[1]"]


@pytest.mark.parametrize(
    "num_ranks, share, taken", [(2, False, ["[0]", "[1]"]), (3, True, ["[0]", "[1]", "[0]"])]
)
def test_ranks_use_gpus_locked_by_runner(num_ranks, share, taken, under_mpi, monkeypatch):
    """GPUs locked by run.pl --gpu are available to the job for which they are locked."""
    monkeypatch.setenv(VARIABLE, "x,y")
    assert under_mpi(num_ranks, share, "run.pl --gpu 2") == taken


@pytest.mark.parametrize(
    "given, variable, expected",
    [
        ("0 2", None, {VARIABLE: "0,2"}),
        ("cuda1 cuda3", None, {VARIABLE: "1,3"}),
        ("0", "5", {}),
        ("", None, {}),
        (None, None, {}),
    ],
)
def test_gpus_granted_by_grid_engine(given, variable, expected, monkeypatch):
    for name, value in (("SGE_HGR_gpu", given), (VARIABLE, variable)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert granted_by_grid_engine() == expected
    if expected:
        assert list(gpus_for_jobs().values()) == expected[VARIABLE].split(",")


def test_real_gpu_is_used():
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    for lock in take_gpu(SoloComm(), Work(), share=False, log=Path("x.log")):
        lock.release()
    assert torch.ones(1, device="cuda").device.index == 0
