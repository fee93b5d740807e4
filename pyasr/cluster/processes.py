"""Processes that leave nothing behind: a job is a process group, and a guard ends the groups when their runner dies, however it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from pyasr.base.stop_request import SAVING_S

_GRACE_S = 2.0
_LAST_WORDS_S = 1.0


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
    """A small process that outlives its parent by a moment and ends what the parent left: process groups, unless `end` ends other things.

    The parent tells it by a pipe what has begun and ended; the pipe closes when the parent dies, however it dies. A guard that was
    killed is replaced as soon as the parent has something to tell it, or calls `replace`.
    """

    def __init__(self, end: Callable[[list[str]], None] | None = None):
        self._end = end or (lambda groups: end_groups(list(map(int, groups))))
        self._held: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._writer)
            _guard(reader, self._end, self._held)
        os.close(reader)

    def replace(self) -> None:
        """Begin another guard, which knows what is held."""
        os.close(self._writer)
        self._begin()

    def hold(self, name: str) -> None:
        """What has this name, a word, has begun."""
        self._held.add(name)
        self._tell(f"+{name}")

    def drop(self, name: str) -> None:
        """It has ended, and its name may be used again by others."""
        self._held.discard(name)
        self._tell(f"-{name}")

    def _tell(self, words: str) -> None:
        try:
            os.write(self._writer, f"{words}\n".encode())
        except BrokenPipeError:
            self.replace()

    def enter(self) -> None:
        """For a job's process between fork and exec: become the leader of a group that is guarded, if the guard lives; the parent, who can
        replace it, holds the group as well.

        It is a session as well: a background group of the terminal's session would be stopped, without a word, when it reads the terminal.
        """
        os.setsid()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.write(self._writer, f"+{os.getpid()}\n".encode())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as subprocess has it for all that it starts


def _guard(reader: int, end: Callable[[list[str]], None], held: set[str]) -> None:
    """The guard's own life; does not return."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        with os.fdopen(reader, encoding="utf-8") as lines:
            for line in lines:
                (held.add if line[0] == "+" else held.discard)(line[1:].rstrip("\n"))
        end(sorted(held))
    finally:
        os._exit(0)


class Stopped(Exception):
    """A signal asked this process to end; the argument is its number."""


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def raise_on_stop() -> None:
    """From now on the signals that ask for an end raise `Stopped`; but SIGHUP is still ignored where it was, as under nohup."""

    def stop(number, frame):
        raise Stopped(number)

    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


@contextlib.contextmanager
def stop_later():
    """Signals that ask for an end are heard when this block has ended."""
    asked: list[int] = []
    heard = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in asked:
            signal.raise_signal(number)


def ignore_stop() -> None:
    """From now on the signals that ask for an end do nothing: the end is being made."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def supervise(command: list[str]) -> int:
    """Run a command as a process group of its own and end the whole group with it.

    Returns the exit status as a shell gives it. When this process is asked to end, the group is ended: it has time to save what it has,
    unless this process is asked again. When it is killed outright, the guard ends the group.
    """
    guard, groups = Guard(), []
    name = os.path.basename(next((word for word in command if word.endswith(".sh")), command[0]))
    try:
        raise_on_stop()
        with stop_later():
            process = subprocess.Popen(command, stdin=None if _may_read() else subprocess.DEVNULL, preexec_fn=guard.enter)
            groups.append(process.pid)
        status = process.wait()
        _wait_until_empty(process.pid, _LAST_WORDS_S)
        if status < 0:
            killed = f"its shell was killed by signal {-status} from outside"
            print(f"{name}: error: {killed}; run the same command again to go on", file=sys.stderr)
    except Stopped as stop:
        status = -stop.args[0]
        with contextlib.suppress(Stopped):  # harmless: asked again, so the rest is ended at once
            print(f"{name}: stopped by signal {-status}; run the same command again to go on", file=sys.stderr)
            end_groups(groups, SAVING_S + _GRACE_S)
    ignore_stop()
    end_groups(groups)
    return status if status >= 0 else 128 - status


def _may_read() -> bool:
    """Whether standard input is ours to read: not where it is a terminal whose shell has us in the background."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # harmless: it is no terminal, or none that a shell shares with us


def _wait_until_empty(group: int, most_s: float) -> None:
    """Leave the rest of a group a moment to end by itself: `run.sh > >(tee log)` still has to write its last lines."""
    deadline = time.monotonic() + most_s
    while signal_group(group, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
