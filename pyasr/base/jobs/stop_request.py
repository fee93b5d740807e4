"""Requests that a job save its state and end: a file that the runner creates when the scheduler announces the
end of the job.

    in the runner   environment[VARIABLE] = str(path); path.touch()
    in the job      if is_stop_requested(): save; raise StopRequested("saved at 1200 frames")

A file is used because schedulers and MPIs deliver signals differently: to the ranks or to mpiexec, and some
end either of them. With a second file, a job shows that it looks for requests, so that the runner waits for
it:

    in the job      with watching_for_stop(rank == 0): ...
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "PYASR_STOP_FILE"
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: exit status of a job that has saved its state and can be resumed


SAVING_S = 20.0  # for which a runner waits for its jobs to save their state before it ends


class StopRequested(Exception):
    """Raised after a request to end, when the state is saved; the argument is the position in the work."""


def watch_file(stop_file: Path) -> Path:
    """The file that exists while a job looks for requests in its stop file."""
    return Path(stop_file).with_suffix(".stoppable")


@contextlib.contextmanager
def watching_for_stop(speaks: bool) -> Iterator[None]:
    """Show the runner, if there is one, that this job looks for requests to end. `speaks` is true in one
    process of the job."""
    sign = watch_file(Path(os.environ[VARIABLE])) if speaks and VARIABLE in os.environ else None
    if sign is None:
        yield
        return
    sign.touch()
    try:
        yield
    finally:
        sign.unlink(missing_ok=True)


def is_stop_requested() -> bool:
    """Whether this process's job was asked to end. The file may be visible only on the first host."""
    return os.path.exists(os.environ.get(VARIABLE, ""))
