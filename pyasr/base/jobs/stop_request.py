"""How a job is asked to end soon: by a file that its runner makes when a scheduler warns of its end.

    in the runner   environment[VARIABLE] = str(path); path.touch()
    in the job      if is_stop_requested(): save; raise StopRequested("saved at 1200 frames")

A file is what all schedulers and MPIs leave alone: signals reach sometimes the ranks, sometimes mpiexec, and sometimes end either. By
another the runner knows which jobs look for the first, and are worth waiting for:

    in the job      with heeding(rank == 0): ...
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "PYASR_STOP_FILE"
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: exit status of a job that has saved what it has, and can go on when it is run again


SAVING_S = 20.0  # that a runner which is to end waits for its jobs to save what they have


class StopRequested(Exception):
    """The work was asked to end, and has saved what it has; the argument says how far it is."""


def sign_of_heed(stop_file: Path) -> Path:
    """What is there as long as a job looks for its file."""
    return Path(stop_file).with_suffix(".heeds")


@contextlib.contextmanager
def heeding(speaks: bool) -> Iterator[None]:
    """Have the runner of this process's job, if it has one, know that the job looks for requests to end; one of its processes speaks."""
    sign = sign_of_heed(Path(os.environ[VARIABLE])) if speaks and VARIABLE in os.environ else None
    if sign is None:
        yield
        return
    sign.touch()
    try:
        yield
    finally:
        sign.unlink(missing_ok=True)


def is_stop_requested() -> bool:
    """Whether this process's job was asked to end. On other hosts than the first, nobody need know."""
    return os.path.exists(os.environ.get(VARIABLE, ""))
