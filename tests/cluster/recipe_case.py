"""A recipe under a real scheduler, which its cmd.sh detects."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

# for jobs, and for jobs that train networks: the host of Grid Engine declares GPUs
RUNNERS = {"slurm": ("slurm.pl", "slurm.pl"), "grid": ("queue.pl", "queue.pl --gpu 1")}
WAIT_S = 1800  # for commands that take a minute or two on an idle machine


def log_of(name: str, process: subprocess.Popen, place: Path, status: int = 0) -> str:
    """Wait until a recipe under the scheduler `name` ends with this status; returns PLACE/recipe.log."""
    ended = process.wait(WAIT_S)
    said = (place / "recipe.log").read_text()
    assert ended == status, said[-4000:]
    assert "jobs are run by {}, those that train networks by {} (cmd.sh)".format(*RUNNERS[name]) in said
    return said


def outputs_of_jobs(directory: Path) -> set[str]:
    """Outputs below a directory that jobs wrote. All these jobs must have run under a scheduler."""
    outputs = {path.parents[1] for path in directory.rglob("log/*.status")}
    assert outputs == {path.parents[1] for path in directory.rglob("q/*.sh")}
    return {str(path.relative_to(directory)) for path in outputs}


def without(place: Path, removed: Iterable[str]) -> Path:
    """`place`, without these outputs of a finished run and without the traces of its jobs, which are those
    that `outputs_of_jobs` finds."""
    for made in removed:
        shutil.rmtree(place / made)
    for status in place.rglob("log/*.status"):
        status.unlink()
    for scripts in [path for path in place.rglob("q") if path.is_dir()]:
        shutil.rmtree(scripts)
    return place


def digests(directory: Path) -> dict[Path, str]:
    """{file of a model DIRECTORY/*/final.*: digest of its content}"""
    files = directory.glob("*/final.*")
    return {path.relative_to(directory): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
