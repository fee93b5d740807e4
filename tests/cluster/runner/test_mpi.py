"""Launch of ranks: which program, with which flags."""

import re
import sys

import pytest

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.errors import UserError
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.cluster.runner.mpi import find_mpiexec, launch_prefix


@pytest.fixture(autouse=True)
def outside_of_schedulers(tmp_path, monkeypatch):
    for name in ("PYASR_MPIEXEC", "SLURM_JOB_ID", "PE_HOSTFILE", "JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def program(path, says):
    """A program that only prints its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """Put srun on PATH, in an environment without mpiexec."""
    monkeypatch.setattr("pyasr.cluster.runner.mpi.ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    found = program(tmp_path / "bin" / "srun", "slurm 23.11.4")
    monkeypatch.setenv("PATH", str(found.parent), prepend=":")
    return found


HYDRA, OPEN_MPI = "HYDRA build details:", "mpirun (Open MPI) 5.0.7"


def grid_engine(tmp_path, monkeypatch, says, hosts):
    """Simulate a job of Grid Engine with these hosts and an MPI with this version text; returns its
    mpiexec."""
    (tmp_path / "pe_hostfile").write_text(hosts)
    monkeypatch.setenv("PE_HOSTFILE", str(tmp_path / "pe_hostfile"))
    monkeypatch.setenv("JOB_ID", "12")
    monkeypatch.setenv("PYASR_MPIEXEC", str(program(tmp_path / "mpiexec", says)))
    return tmp_path / "mpiexec"


@pytest.mark.parametrize(
    "says, num_ranks, num_threads, flags, lines",
    [
        (HYDRA, 4, 2, "-f {}", "n1:3\nn2:1\n"),
        (OPEN_MPI, 4, 2, "--hostfile {}", "n1 slots=3\nn2 slots=1\n"),
        (OPEN_MPI, 9, 1, "--hostfile {}", "n1 slots=6\nn2 slots=3\nn3 slots=1\n"),
        (HYDRA, 9, 1, "", None),  # this mpiexec asks Grid Engine itself
    ],
)
def test_grid_engine_hosts_get_ranks_by_slots(
    says, num_ranks, num_threads, flags, lines, tmp_path, monkeypatch
):
    """A host gets as many ranks as its slots have room for all their threads. A host may have slots in
    several queues."""
    mpiexec = grid_engine(
        tmp_path,
        monkeypatch,
        says,
        "n1 4 a.q@n1 UNDEFINED\nn2 3 a.q@n2 <NULL>\nn3 1 a.q@n3 <NULL>\nn1 2 b.q@n1 0,1\n",
    )
    hosts = tmp_path / "hosts.12"
    words = launch_prefix(num_ranks, num_threads).split()
    assert words[0] == str(mpiexec) and words[-2:] == ["-n", str(num_ranks)]
    assert flags.format(hosts) in " ".join(words) and hosts.exists() == ("{}" in flags)
    assert not hosts.exists() or hosts.read_text() == lines


@pytest.mark.parametrize("says", [HYDRA, OPEN_MPI])
@pytest.mark.parametrize(
    "slots, num_threads, sentence",
    [
        (
            (1, 1, 1, 1),
            2,
            "4 slots on 4 host(s) have room for 0 of 2 ranks of 2 thread(s); name a parallel environment "
            "whose allocation_rule is 2, or a multiple of it, by 'option num_ranks=* -pe NAME $0 -notify' in "
            "conf/queue.conf",
        ),
        ((4, 2), 3, "6 slots on 2 host(s) have room for 1 of 2 ranks of 3 thread(s); name "),
        (
            (1,),
            1,
            (
                "1 slots on 1 host(s) are too few for 2 ranks of 1 thread(s); ask for more slots, or run "
                "fewer ranks"
            ),
        ),
    ],
)
def test_grid_engine_hosts_with_too_few_slots_are_refused(
    says, slots, num_threads, sentence, tmp_path, monkeypatch
):
    """mpiexec would otherwise start all ranks on one host."""
    grid_engine(
        tmp_path,
        monkeypatch,
        says,
        "".join(f"n{host} {number} all.q UNDEFINED\n" for host, number in enumerate(slots)),
    )
    with pytest.raises(UserError, match=re.escape(f"Grid Engine's {sentence}")):
        launch_prefix(2, num_threads)
    assert not (tmp_path / "hosts.12").exists()


def test_srun_is_used_without_mpiexec(srun, monkeypatch):
    """Only within a job of Slurm. Elsewhere, srun would wait for an allocation."""
    with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
        launch_prefix(2)
    assert find_mpiexec(within_slurm=True) == srun
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert launch_prefix(2, 4) == f"{srun} --mpi=pmi2 -K1 -c 4 -n 2"
    srun.unlink()
    monkeypatch.setenv("PATH", str(srun.parent))
    with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
        launch_prefix(2)


def test_step_starts_ranks_through_slurm_without_own_mpiexec(srun, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("pyasr.cluster.ranks.jobs._run_ranks_once", lambda jobs, *_: started.append(jobs.cmd))
    run_ranks(
        JobOptions(cmd="slurm.pl --mem 2G"), tmp_path / "x.log", "module:function", JobOptions(), num_ranks=2
    )
    for cmd in ("run.pl", "queue.pl"):
        with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
            run_ranks(JobOptions(cmd=cmd), tmp_path / "x.log", "module:function", JobOptions(), num_ranks=2)
    assert started == ["slurm.pl --mem 2G"]


def test_mpiexec_is_preferred_to_srun(srun, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    mpiexec = program(tmp_path / ".venv" / "bin" / "mpiexec", "HYDRA build details:")
    assert launch_prefix(2, 4) == f"{mpiexec} -n 2"
