"""The lock of a scratch directory: one process writes an output at a time.

The kernel releases the lock when the process ends. Locks of directories are local to the host: on NFS, runs
on other hosts do not see them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from pyasr.base.errors import UserError

_WAITS_S = (0.05, 0.1, 0.2)


@contextlib.contextmanager
def claimed(scratch: Path):
    """Hold the lock of the scratch directory, which is created if there is none. Raises UserError if another
    process holds it."""
    scratch.mkdir(parents=True, exist_ok=True)
    directory = os.open(scratch, os.O_RDONLY)
    try:
        if not _is_locked(scratch, directory):
            raise UserError(
                f"{scratch} is in use: another process is writing this output; wait until it has ended"
            )
        yield
    finally:
        os.close(directory)


def _is_locked(scratch: Path, directory: int) -> bool:
    """Try to lock the scratch directory, which was opened as `directory`; whether that succeeded. Waits for
    programs that only test the lock and hold it for a moment."""
    for wait_s in (*_WAITS_S, None):
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # another directory, or none: the run that held the lock has renamed this one
            return os.path.samestat(scratch.stat(), os.fstat(directory))
        except FileNotFoundError:
            return False
        except BlockingIOError:
            if wait_s is not None:
                time.sleep(wait_s)
    return False


def is_held(scratch: Path) -> bool:
    """Whether a process of this host is writing the scratch directory."""
    directory = os.open(scratch, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(directory)
