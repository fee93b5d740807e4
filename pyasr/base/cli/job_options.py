"""Options of a step's jobs; in this package so that both steps and library can declare them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyasr.base.cli.options import option


@dataclass(frozen=True)
class RunnerOptions:
    """Options of a step with one job: runner and number of threads. They never change its results."""

    heading = "jobs"

    cmd: str = option(
        "run.pl",
        "command that runs jobs: run.pl, slurm.pl or queue.pl with its options, such as 'slurm.pl --mem 4G'",
        is_command=True,
    )
    num_threads: int | None = option(
        None, "number of threads of a job; none: as set by --cmd or its configuration, else 1", minimum=1
    )


@dataclass(frozen=True)
class JobOptions(RunnerOptions):
    """Options of a step with several jobs or ranks."""

    heading = "jobs"

    nj: int = option(2, "number of parallel jobs", minimum=1, common=True)


@dataclass(frozen=True)
class RankJobOptions(RunnerOptions):
    """Options of a step whose ranks resume from checkpoints."""

    max_restarts: int = option(
        2, "maximum number of restarts from the last checkpoint after the loss of ranks", minimum=0
    )
    rank_timeout: float = option(
        600.0,
        "seconds after which a suspended or unreachable rank counts as lost; 0: never",
        minimum=0.0,
        rare=True,
    )
    share_devices: bool = option(
        False, "allow several ranks and other jobs on one GPU if there are too few GPUs", rare=True
    )


def threads_of_job(given: int | None = None) -> int:
    """Number of threads of this job or rank: `given`, else that of the runner (OMP_NUM_THREADS), else 1."""
    return given or int(os.environ.get("OMP_NUM_THREADS", "1"))
