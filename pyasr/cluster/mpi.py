"""How ranks are started: which mpiexec, and the flags that it needs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.granted_gpus import OF_ONE_HOST

ROOT = Path(__file__).resolve().parents[2]
_FLAGS = {
    "openmpi": ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "osc", "^ucx"],
    "mpich": [],
    "srun": ["--mpi=pmi2", "-K1"],  # without -K1 the others wait for a rank that was killed
}


def find_mpiexec(within_slurm: bool = False) -> Path:
    """The environment's own mpiexec, or what PYASR_MPIEXEC names: a cluster's MPI, with an mpi4py built against it, or Slurm's srun;
    where there is neither, srun within a job of Slurm, and for ranks that will run there (`within_slurm`).

    Never an mpiexec that merely happens to be on PATH: it may belong to another MPI than mpi4py's, and every rank would believe to be
    alone.
    """
    named = os.environ.get("PYASR_MPIEXEC")
    if named:
        if found := shutil.which(named):
            return Path(found)
        raise UserError(f"PYASR_MPIEXEC={named}: no such program; name an mpiexec by its absolute path, or unset the variable")
    places = [Path(sys.executable).parent, ROOT / ".venv" / "bin"]
    for place in places:
        if os.access(place / "mpiexec", os.X_OK):
            return place / "mpiexec"
    srun = shutil.which("srun") if within_slurm or "SLURM_JOB_ID" in os.environ else None
    if srun:
        return Path(srun)
    raise UserError(f"mpiexec is missing in {places[0]}; install an MPI with '{sys.executable} -m pip install mpi4py==4.1.2 mpich==5.0.2'")


def flavour(mpiexec: Path) -> str:
    """'openmpi', 'srun', or 'mpich' (which stands for all that descend from it)."""
    if mpiexec.name == "srun":
        return "srun"
    try:
        said = subprocess.run([str(mpiexec), "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        again = f"{sys.executable} -m pip install --force-reinstall mpich==5.0.2"
        raise UserError(f"{mpiexec} does not run ({error}); install an MPI anew with '{again}'") from None
    return "openmpi" if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said or "prterun" in said else "mpich"


def launch_prefix(num_ranks: int, num_threads: int = 1) -> str:
    """What stands before a command line to run it as `num_ranks` ranks of `num_threads` threads: on this machine, or where the scheduler
    has given this job room, which an mpiexec finds out by itself, but not always for Grid Engine."""
    mpiexec = find_mpiexec()
    kind = flavour(mpiexec)
    words = [str(mpiexec), *_FLAGS[kind]]
    words += ["-c", str(num_threads)] if kind == "srun" else []  # since Slurm 22.05 it does not take this from sbatch
    if kind == "openmpi":
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    given = os.environ.get("PE_HOSTFILE") if kind != "srun" else None
    room = _room(Path(given), num_ranks, num_threads) if given else {}
    if room and (kind == "openmpi" or num_threads > 1):
        words += ["--hostfile" if kind == "openmpi" else "-f", _hostfile(room, kind)]
    return shlex.join([*words, "-n", str(num_ranks)])


def for_ranks(environment: dict[str, str]) -> dict[str, str]:
    """What mpiexec needs beside this environment, so that ranks are given all of it but what names GPUs of its own host, which MPICH would
    put over what they have on theirs."""
    names = ",".join(name for name in environment if name not in OF_ONE_HOST)
    return {"HYDRA_ENV": f"list:{names}", **_for_srun(environment)}


def _for_srun(environment: dict[str, str]) -> dict[str, str]:
    """What srun needs, by which an mpiexec starts ranks as well. In a job of `sbatch --export=PATH`, as Kaldi's configuration has it, it
    would hand on the PATH alone; in a step, as `srun --pty bash` is one, it would wait until that has ended."""
    exported = {"SLURM_EXPORT_ENV": "ALL"} if "SLURM_EXPORT_ENV" in environment else {}
    return exported | ({"SLURM_OVERLAP": "1"} if "SLURM_STEP_ID" in environment else {})


def _room(given: Path, num_ranks: int, num_threads: int) -> dict[str, int]:
    """{host: how many ranks it can take}, by Grid Engine's lines `HOST SLOTS QUEUE PROCESSORS`, of which a host has one for each of its
    queues; each rank takes `num_threads` slots of one host. Raises UserError where there is room for fewer than `num_ranks`."""
    slots = Counter()
    for line in given.read_text(encoding="utf-8").splitlines():
        host, number = line.split()[:2]
        slots[host] += int(number)
    room = {host: number // num_threads for host, number in slots.items()}
    if sum(room.values()) >= num_ranks:
        return {host: number for host, number in room.items() if number}
    has, ranks = f"Grid Engine's {slots.total()} slots on {len(slots)} host(s)", f"{num_ranks} ranks of {num_threads} thread(s)"
    if slots.total() < num_ranks * num_threads:
        raise UserError(f"{has} are too few for {ranks}; ask for more slots, or run fewer ranks")
    raise UserError(f"{has} have room for {sum(room.values())} of {ranks}; name a parallel environment whose allocation_rule is "
                    f"{num_threads}, or a multiple of it, by 'option num_ranks=* -pe NAME $0 -notify' in conf/queue.conf")  # fmt: skip


def _hostfile(room: dict[str, int], kind: str) -> str:
    """A file for an mpiexec: how many ranks each host is to get."""
    form = "{} slots={}\n" if kind == "openmpi" else "{}:{}\n"
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"hosts.{os.environ.get('JOB_ID', os.getpid())}"
    path.write_text("".join(form.format(host, number) for host, number in room.items()), encoding="utf-8")
    return str(path)
