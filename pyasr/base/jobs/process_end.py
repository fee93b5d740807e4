"""Exit of a process without the teardown of its modules, which takes half a CPU second for torch and a fifth
for numba."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process with an exit status. As with sys.exit, threads are joined, functions registered with
    `atexit` are called, and the standard streams are flushed; but objects are not finalised, so other files
    must have been closed."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
