"""Processes that leave nothing behind: every job is a process group, and a guard ends the groups when their runner dies, even by kill -9."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_GRACE_S = 2.0


def die_with_parent() -> None:
    """Let the kernel send this process SIGTERM when its parent dies (Linux; elsewhere nothing happens)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when nobody is left in it."""
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False  # harmless: gone already (macOS says EPERM for a group of zombies)


def end_groups(groups: list[int], grace_s: float = _GRACE_S) -> None:
    """SIGTERM to all groups, SIGKILL to those that are still there `grace_s` seconds later."""
    left = [group for group in groups if signal_group(group, signal.SIGTERM)]
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        _reap(left)
        left = [group for group in left if signal_group(group, 0)]
    for group in left:
        signal_group(group, signal.SIGKILL)


def _reap(groups: list[int]) -> None:
    """Collect leaders of these groups that are our own zombies, which would count as alive."""
    for group in groups:
        try:
            os.waitpid(group, os.WNOHANG)
        except ChildProcessError:
            pass  # harmless: not our child, or collected before


class Guard:
    """A small process that outlives its parent by a moment and ends the groups which the parent left.

    The parent tells it by a pipe which groups have begun and ended; the pipe closes when the parent dies, however it dies.
    """

    def __init__(self):
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._writer)
            _guard(reader)
        os.close(reader)

    def enter(self) -> None:
        """For a job's process between fork and exec: become the leader of a group that is guarded."""
        os.setpgid(0, 0)
        os.write(self._writer, f"+{os.getpid()}\n".encode())

    def leave(self, group: int) -> None:
        """The group has ended and its number may be used again by others."""
        os.write(self._writer, f"-{group}\n".encode())


def _guard(reader: int) -> None:
    """The guard's own life; does not return."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        groups = set()
        with os.fdopen(reader) as lines:
            for line in lines:
                (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
        end_groups(sorted(groups))
    finally:
        os._exit(0)
