"""A recipe that is tried under a real scheduler, which its cmd.sh finds by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

# of jobs, and of those that train networks: the host of Grid Engine says that it has GPUs
RUNNERS = {"slurm": ("slurm.pl", "slurm.pl"), "grid": ("queue.pl", "queue.pl --gpu 1")}
WAIT_S = 1800  # for what takes a minute or two on an idle machine


def log_of(name: str, process: subprocess.Popen, place: Path, status: int = 0) -> str:
    """PLACE/recipe.log of a recipe under the scheduler `name`, once it has ended with this status."""
    ended = process.wait(WAIT_S)
    said = (place / "recipe.log").read_text()
    assert ended == status, said[-4000:]
    assert "jobs are run by {}, those that train networks by {} (cmd.sh)".format(*RUNNERS[name]) in said
    return said


def outputs_of_jobs(directory: Path) -> set[str]:
    """Outputs below a directory that jobs have made, all of them by a scheduler."""
    outputs = {path.parents[1] for path in directory.rglob("log/*.status")}
    assert outputs == {path.parents[1] for path in directory.rglob("q/*.sh")}
    return {str(path.relative_to(directory)) for path in outputs}
