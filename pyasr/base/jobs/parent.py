"""A process that must not outlive the one that has started it."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def die_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Let the kernel send this process the signal when its parent dies (Linux; elsewhere nothing happens)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)
