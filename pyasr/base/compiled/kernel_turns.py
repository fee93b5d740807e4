"""Coordination of processes that need the same kernel: one compiles it, the others wait and load it from the
cache.

The turn to compile is a flock(2) lock on a file next to the kernel's in the cache. The operating system
releases it when the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

_PATIENCE_S = 120.0  # after that, a process compiles by itself: the holder of the lock may be suspended
_LOOK_S = 0.02


class CompileTurn:
    """The turn to compile a kernel. `lock` is the lock file; it exists only while a process has the turn."""

    def __init__(self, lock: Path):
        self._lock = lock
        self._file: int | None = None

    def take(self) -> None:
        """Wait for the turn. If the filesystem has no locks or is read-only, processes do not wait for each
        other."""
        if self._file is not None:
            return
        with contextlib.suppress(OSError):  # harmless: the kernel is compiled by several processes
            self._file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            _wait_for(self._file)

    def end(self) -> None:
        """Release the turn: other processes load the kernel from the cache, or compile it."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # harmless: it is empty
                os.unlink(self._lock)
            os.close(self._file)
            self._file = None


def _wait_for(file: int) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
