"""Start ranks: choose mpiexec and the flags that it needs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.host.granted_gpus import OF_ONE_HOST

ROOT = Path(__file__).resolve().parents[3]
_FLAGS = {
    "openmpi": ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "osc", "^ucx"],
    "mpich": [],
    "srun": ["--mpi=pmi2", "-K1"],  # without -K1, the others wait for a killed rank
}


def find_mpiexec(within_slurm: bool = False) -> Path:
    """The program that PYASR_MPIEXEC names (the mpiexec of a cluster's MPI, with an mpi4py built against it,
    or Slurm's srun), else the mpiexec of the Python environment, else srun within a Slurm job or for ranks
    that will run in one (`within_slurm`).

    An mpiexec on PATH is never used: it may belong to another MPI than mpi4py's, and each rank would then run
    as a group of one.
    """
    named = os.environ.get("PYASR_MPIEXEC")
    if named:
        if found := shutil.which(named):
            return Path(found)
        raise UserError(
            f"PYASR_MPIEXEC={named}: no such program; name an mpiexec by its absolute path, or unset the "
            "variable"
        )
    places = [Path(sys.executable).parent, ROOT / ".venv" / "bin"]
    for place in places:
        if os.access(place / "mpiexec", os.X_OK):
            return place / "mpiexec"
    srun = shutil.which("srun") if within_slurm or "SLURM_JOB_ID" in os.environ else None
    if srun:
        return Path(srun)
    raise UserError(
        f"mpiexec is missing in {places[0]}; install an MPI with '{sys.executable} -m pip install "
        "mpi4py==4.1.2 mpich==5.0.2'"
    )


def flavour(mpiexec: Path) -> str:
    """'openmpi', 'srun', or 'mpich' (for MPICH and everything derived from it)."""
    if mpiexec.name == "srun":
        return "srun"
    try:
        said = subprocess.run([str(mpiexec), "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        again = f"{sys.executable} -m pip install --force-reinstall mpich==5.0.2"
        raise UserError(f"{mpiexec} does not run ({error}); install MPI again with '{again}'") from None
    return (
        "openmpi"
        if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said or "prterun" in said
        else "mpich"
    )


def launch_prefix(num_ranks: int, num_threads: int = 1) -> str:
    """The prefix of a command line that runs it as `num_ranks` ranks of `num_threads` threads: on this
    machine, or on the hosts that the scheduler has assigned to this job. mpiexec finds these hosts by itself,
    except sometimes with Grid Engine."""
    mpiexec = find_mpiexec()
    kind = flavour(mpiexec)
    words = [str(mpiexec), *_FLAGS[kind]]
    # since Slurm 22.05, srun does not inherit this from sbatch
    words += ["-c", str(num_threads)] if kind == "srun" else []
    if kind == "openmpi":
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    given = os.environ.get("PE_HOSTFILE") if kind != "srun" else None
    room = _room(Path(given), num_ranks, num_threads) if given else {}
    if room and (kind == "openmpi" or num_threads > 1):
        words += ["--hostfile" if kind == "openmpi" else "-f", _hostfile(room, kind)]
    return shlex.join([*words, "-n", str(num_ranks)])


def for_ranks(environment: dict[str, str]) -> dict[str, str]:
    """Variables to add to mpiexec's environment so that ranks get this environment without the variables that
    name this host's GPUs. MPICH would override the ranks' own values with them."""
    names = ",".join(name for name in environment if name not in OF_ONE_HOST)
    return {"HYDRA_ENV": f"list:{names}", **_for_srun(environment)}


def _for_srun(environment: dict[str, str]) -> dict[str, str]:
    """Variables for srun, which mpiexec also uses to start ranks. Without them, srun in a job of `sbatch
    --export=PATH` (Kaldi's configuration) would pass only PATH, and srun within a step (such as `srun --pty
    bash`) would wait for the end of that step."""
    exported = {"SLURM_EXPORT_ENV": "ALL"} if "SLURM_EXPORT_ENV" in environment else {}
    return exported | ({"SLURM_OVERLAP": "1"} if "SLURM_STEP_ID" in environment else {})


def _room(given: Path, num_ranks: int, num_threads: int) -> dict[str, int]:
    """{host: number of ranks that fit}, from Grid Engine's lines `HOST SLOTS QUEUE PROCESSORS`, one per host
    and queue. Each rank takes `num_threads` slots of one host. Raises UserError if fewer than `num_ranks`
    fit."""
    slots: Counter[str] = Counter()
    for line in given.read_text(encoding="utf-8").splitlines():
        host, number = line.split()[:2]
        slots[host] += int(number)
    room = {host: number // num_threads for host, number in slots.items()}
    if sum(room.values()) >= num_ranks:
        return {host: number for host, number in room.items() if number}
    has = f"Grid Engine's {slots.total()} slots on {len(slots)} host(s)"
    ranks = f"{num_ranks} ranks of {num_threads} thread(s)"
    if slots.total() < num_ranks * num_threads:
        raise UserError(f"{has} are too few for {ranks}; ask for more slots, or run fewer ranks")
    raise UserError(
        f"{has} have room for {sum(room.values())} of {ranks}; name a parallel environment whose "
        f"allocation_rule is {num_threads}, or a multiple of it, by 'option num_ranks=* -pe NAME $0 -notify' "
        "in conf/queue.conf"
    )


def _hostfile(room: dict[str, int], kind: str) -> str:
    """Write a host file for mpiexec with the number of ranks per host; return its path."""
    form = "{} slots={}\n" if kind == "openmpi" else "{}:{}\n"
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"hosts.{os.environ.get('JOB_ID', os.getpid())}"
    path.write_text("".join(form.format(host, number) for host, number in room.items()), encoding="utf-8")
    return str(path)
