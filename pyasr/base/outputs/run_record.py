"""Provenance of an output: command, commit, machine and versions. It is stored in the done-file, from which
RESULTS.md is written.

Imports that are needed only at the end of a step are inside the functions, because jobs import this module,
too.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("numpy", "numba", "torch", "mpi4py")


def run_record() -> dict:
    """JSON values: command, its end (UTC), commit of the code, machine, versions of Python and packages."""
    own_commit, own_versions = _code_of_process()
    return {
        "command": shlex.join(sys.argv),
        "ended": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "commit": own_commit,
        "machine": machine(),
        "versions": own_versions,
    }


@functools.cache
def _code_of_process() -> tuple[str, dict[str, str]]:
    """(commit, versions), the same for all outputs of a process."""
    return commit(), versions()


def commit() -> str:
    """The commit of pyasr's own repository, with '+changes' if tracked files differ from it; 'unknown'
    outside a repository."""
    import subprocess

    # a killed `status` would leave its lock file behind
    words = ["--no-optional-locks", "-C", str(_ROOT), "status", "--porcelain=v2", "--branch"]
    try:
        done = subprocess.run(
            ["git", *words, "--untracked-files=no"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    lines = done.stdout.splitlines()
    (head,) = [line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")]
    if head == "(initial)":  # nothing is committed
        return "unknown"
    return head[:12] + ("+changes" if any(not line.startswith("#") for line in lines) else "")


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
    import platform
    from importlib.metadata import PackageNotFoundError, distribution

    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            metadata = distribution(name).read_text("METADATA") or ""
        except PackageNotFoundError:
            continue  # harmless: it was not used
        # `importlib.metadata.version` would parse all lines
        if version := re.search(r"(?m)^Version: *(\S+)", metadata):
            found[name] = version[1]
    return found
