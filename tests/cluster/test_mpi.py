"""What starts ranks: which program, and with which flags."""

import sys

import pytest

from pyasr.base.errors import UserError
from pyasr.base.job_options import JobOptions
from pyasr.cluster.jobs import run_ranks
from pyasr.cluster.mpi import find_mpiexec, launch_prefix


@pytest.fixture(autouse=True)
def outside_of_schedulers(tmp_path, monkeypatch):
    for name in ("PYASR_MPIEXEC", "SLURM_JOB_ID", "PE_HOSTFILE", "JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def program(path, says):
    """A program that does nothing but say which it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """On PATH, in an environment that has no mpiexec."""
    monkeypatch.setattr("pyasr.cluster.mpi.ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    found = program(tmp_path / "bin" / "srun", "slurm 23.11.4")
    monkeypatch.setenv("PATH", str(found.parent), prepend=":")
    return found


def test_srun_where_there_is_no_mpiexec(srun, monkeypatch):
    """In a job of Slurm, and for one; on any other host srun would wait for room."""
    with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
        launch_prefix(2)
    assert find_mpiexec(within_slurm=True) == srun
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert launch_prefix(2, 4) == f"{srun} --mpi=pmi2 -K1 -c 4 -n 2"
    srun.unlink()
    monkeypatch.setenv("PATH", str(srun.parent))
    with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
        launch_prefix(2)


def test_a_step_starts_ranks_by_slurm_without_an_mpiexec_of_its_own(srun, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("pyasr.cluster.jobs._run_ranks_once", lambda jobs, *_: started.append(jobs.cmd))
    run_ranks(JobOptions(cmd="slurm.pl --mem 2G"), tmp_path / "x.log", "module:function", JobOptions(), num_ranks=2)
    for cmd in ("run.pl", "queue.pl"):
        with pytest.raises(UserError, match="mpiexec is missing in /nowhere/bin"):
            run_ranks(JobOptions(cmd=cmd), tmp_path / "x.log", "module:function", JobOptions(), num_ranks=2)
    assert started == ["slurm.pl --mem 2G"]


def test_an_mpiexec_comes_before_srun(srun, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    mpiexec = program(tmp_path / ".venv" / "bin" / "mpiexec", "HYDRA build details:")
    assert launch_prefix(2, 4) == f"{mpiexec} -n 2"
