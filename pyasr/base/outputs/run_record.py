"""Provenance of an output: command, commit, machine and versions. It is stored in the done-file, from which
RESULTS.md is written.

Imports that are needed only at the end of a step are inside the functions, because jobs import this module,
too.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("numpy", "numba", "torch", "mpi4py")


def run_record() -> dict:
    """JSON values: command, its end (UTC), commit of the code, machine, versions of Python and packages."""
    return {
        "command": shlex.join(sys.argv),
        "ended": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def commit() -> str:
    """The commit of pyasr's own repository, with '+changes' if tracked files differ from it; 'unknown'
    outside a repository."""
    import subprocess

    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    import subprocess

    # a killed `status` would leave its lock file behind
    command = ["git", "--no-optional-locks", "-C", str(_ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    """Processor, and the number of its cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} core{'s' if cores != 1 else ''}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # harmless: there is no /proc outside Linux
    import platform

    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of the numerical packages that are installed."""
    import importlib.metadata
    import platform

    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass  # harmless: it was not used
    return found
