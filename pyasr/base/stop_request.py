"""How a job is asked to end soon: by a file that its runner makes when a scheduler warns of its end.

    in the runner   environment[VARIABLE] = str(path); path.touch()
    in the job      if is_stop_requested(): save; raise StopRequested("saved at 1200 frames")

A file is what all schedulers and MPIs leave alone: signals reach sometimes the ranks, sometimes mpiexec, and sometimes end either.
"""

from __future__ import annotations

import os

VARIABLE = "PYASR_STOP_FILE"
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: exit status of a job that has saved what it has, and can go on when it is run again


class StopRequested(Exception):
    """The work was asked to end, and has saved what it has; the argument says how far it is."""


def is_stop_requested() -> bool:
    """Whether this process's job was asked to end. On other hosts than the first, nobody need know."""
    return os.path.exists(os.environ.get(VARIABLE, ""))
