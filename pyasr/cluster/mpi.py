"""How ranks are started: which mpiexec, and the flags that it needs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pyasr.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
_OPENMPI_FLAGS = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "osc", "^ucx"]


def find_mpiexec() -> Path:
    """The environment's own mpiexec, or the one that PYASR_MPIEXEC names (a cluster's MPI, with an mpi4py built against it).

    Never one that happens to be on PATH: it may belong to another MPI than mpi4py's, and every rank would believe to be alone.
    """
    named = os.environ.get("PYASR_MPIEXEC")
    if named:
        if os.access(named, os.X_OK):
            return Path(named)
        raise UserError(f"PYASR_MPIEXEC={named}: no such program; name an mpiexec by its absolute path, or unset the variable")
    places = [Path(sys.executable).parent, ROOT / ".venv" / "bin"]
    for place in places:
        if os.access(place / "mpiexec", os.X_OK):
            return place / "mpiexec"
    raise UserError(f"mpiexec is missing in {places[0]}; install an MPI with '{sys.executable} -m pip install mpi4py==4.1.2 mpich==5.0.2'")


def flavour(mpiexec: Path) -> str:
    """'openmpi' or 'mpich' (which stands for all that descend from it)."""
    try:
        said = subprocess.run([str(mpiexec), "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        again = f"{sys.executable} -m pip install --force-reinstall mpich==5.0.2"
        raise UserError(f"{mpiexec} does not run ({error}); install an MPI anew with '{again}'") from None
    return "openmpi" if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said or "prterun" in said else "mpich"


def launch_prefix(num_ranks: int) -> str:
    """What stands before a command line to run it as `num_ranks` ranks."""
    mpiexec = find_mpiexec()
    words = [str(mpiexec)]
    if flavour(mpiexec) == "openmpi":
        words += _OPENMPI_FLAGS + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    return shlex.join([*words, "-n", str(num_ranks)])
