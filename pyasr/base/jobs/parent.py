"""Tie the life of a process to that of its parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def die_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process the signal when its parent dies (Linux only; no effect elsewhere)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)
