"""How a step's work is spread over jobs; here, below all packages, so that steps and library may both declare it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyasr.base.cli.options import option


@dataclass(frozen=True)
class RunnerOptions:
    """Of a step whose work is one job: through which runner, with how many threads. Never changes what the step computes."""

    cmd: str = option("run.pl", "how jobs are run: run.pl, slurm.pl or queue.pl with any of its options, e.g. 'slurm.pl --mem 4G'",
                      is_command=True)  # fmt: skip
    num_threads: int | None = option(None, "threads of each job; unless given, as --cmd or its configuration says, else 1", minimum=1)


@dataclass(frozen=True)
class JobOptions(RunnerOptions):
    """Of a step whose work is divided: among how many jobs, or ranks, too."""

    nj: int = option(2, "number of parallel jobs", minimum=1)


@dataclass(frozen=True)
class RankJobOptions(RunnerOptions):
    """Of a step whose ranks can go on from checkpoints."""

    max_restarts: int = option(2, "times that a job which has lost a rank goes on from its last checkpoint with fewer ranks", minimum=0)
    rank_timeout: float = option(600.0, "seconds for which a rank may be stopped (SIGSTOP), or its host silent, and not be lost; 0: any",
                                 minimum=0.0)  # fmt: skip
    share_devices: bool = option(False, "let several ranks of a host, and other jobs, compute on one GPU, where there are too few")


def threads_of_job(given: int | None = None) -> int:
    """Threads of the job, or rank, that this process is: `given`, else those that its runner has given it."""
    return given or int(os.environ.get("OMP_NUM_THREADS", "1"))
