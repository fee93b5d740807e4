"""The end of a process without the teardown of its modules, which takes torch half a CPU second, and numba a fifth of one."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process with an exit status, as sys.exit does: threads are joined, functions registered with `atexit` are called, and the
    standard streams are flushed. Objects that are still alive are not finalised, so other files must have been closed."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
