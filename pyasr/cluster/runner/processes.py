"""Process groups that do not outlive their runner: each job is a process group, and a guard ends the groups
if the runner dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from pyasr.base.jobs.stop_request import SAVING_S

_GRACE_S = 2.0
_OUTPUT_S = 1.0


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False if the group is empty."""
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False  # harmless: already ended (macOS reports EPERM for a group of zombies)


def end_groups(groups: list[int], grace_s: float = _GRACE_S) -> None:
    """Send SIGTERM to all groups, and SIGKILL to those that still exist `grace_s` seconds later."""
    left = [group for group in groups if signal_group(group, signal.SIGTERM)]
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        _reap(left)
        left = [group for group in left if signal_group(group, 0)]
    for group in left:
        signal_group(group, signal.SIGKILL)


def _reap(groups: list[int]) -> None:
    """Reap leaders of these groups that are zombie children of this process; they would count as alive."""
    for group in groups:
        try:
            os.waitpid(group, os.WNOHANG)
        except ChildProcessError:
            pass  # harmless: not a child of this process, or already reaped


class Guard:
    """A small process that briefly outlives its parent and ends the process groups that the parent left (or
    calls `end` on other names).

    The parent reports through a pipe what has started and ended; the pipe closes when the parent dies, for
    whatever reason. If the guard is killed, it is replaced at the parent's next report or call of `replace`.
    """

    def __init__(self, end: Callable[[list[str]], object] | None = None):
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
        """Start another guard with the current list of names."""
        os.close(self._writer)
        self._begin()

    def hold(self, name: str) -> None:
        """Report that the process group (or other item) with this name, a single word, has started."""
        self._held.add(name)
        self._tell(f"+{name}")

    def drop(self, name: str) -> None:
        """Report that it has ended; its name may be reused."""
        self._held.discard(name)
        self._tell(f"-{name}")

    def _tell(self, words: str) -> None:
        try:
            os.write(self._writer, f"{words}\n".encode())
        except BrokenPipeError:
            self.replace()

    def enter(self) -> None:
        """Called in a job's process between fork and exec: become the leader of a new group, and report it to
        the guard if that is alive. The parent, which can replace the guard, reports the group, too.

        The group is also a new session: a background group of the terminal's session would be stopped
        silently when it reads the terminal.
        """
        os.setsid()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.write(self._writer, f"+{os.getpid()}\n".encode())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the default of subprocess for its children


def _guard(reader: int, end: Callable[[list[str]], object], held: set[str]) -> None:
    """The guard's main loop; does not return."""
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
    """Make stop signals raise `Stopped`; SIGHUP stays ignored if it was ignored before, as under nohup."""

    def stop(number, frame):
        raise Stopped(number)

    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


@contextlib.contextmanager
def stop_later():
    """Context that defers stop signals until its end."""
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
    """Ignore stop signals, because the process is already ending."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def supervise(command: list[str]) -> int:
    """Run a command as a process group and end the whole group with it.

    Returns the exit status as a shell gives it. If this process receives a stop signal, it ends the group;
    the group has time to save its state unless a second signal arrives. If this process is killed, the guard
    ends the group.
    """
    guard, groups = Guard(), []
    name = os.path.basename(next((word for word in command if word.endswith(".sh")), command[0]))
    try:
        raise_on_stop()
        with stop_later():
            process = subprocess.Popen(
                command, stdin=None if _may_read() else subprocess.DEVNULL, preexec_fn=guard.enter
            )
            groups.append(process.pid)
        status = process.wait()
        _wait_until_empty(process.pid, _OUTPUT_S)
        if status < 0:
            killed = f"its shell was killed by signal {-status} from outside"
            print(f"{name}: error: {killed}; run the same command again to resume", file=sys.stderr)
    except Stopped as stop:
        status = -stop.args[0]
        with contextlib.suppress(Stopped):  # harmless: a second signal ends the rest at once
            print(
                f"{name}: stopped by signal {-status}; run the same command again to resume", file=sys.stderr
            )
            end_groups(groups, SAVING_S + _GRACE_S)
    ignore_stop()
    end_groups(groups)
    return status if status >= 0 else 128 - status


def _may_read() -> bool:
    """Whether this process may read standard input: not if it is a terminal and this process is in its
    background."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # harmless: not a terminal, or not the controlling terminal


def _wait_until_empty(group: int, most_s: float) -> None:
    """Wait briefly for the rest of a group to end by itself: `tee` in `run.sh > >(tee log)` still has to
    write the last lines."""
    deadline = time.monotonic() + most_s
    while signal_group(group, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
