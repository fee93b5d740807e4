"""Says which rank was lost first. A rank killed from outside cannot; and mpiexec, which then kills all others, may name any of them."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from pathlib import Path
from typing import NoReturn

from pyasr.base.heartbeat import Heart
from pyasr.base.last_words import LastWords, leave
from pyasr.base.parent import die_with_parent
from pyasr.base.system_errors import naming

_LOOK_S = 5.0  # between two looks at the rank, and two beats, at most


class Witness:
    """The process that was started, which waits for the end of the rank, its child, and puts that down in `file` unless dismissed before.

    Only then does it end, in the way of the rank: what has started the ranks learns of a death when it has been told, and kills the others
    after that, with their witnesses. Rank and witness end with each other.

    It also kills the rank, and says so, when that has been stopped (SIGSTOP) for more than `timeout_s` seconds (0: never): the others
    wait for it. To know this it needs neither messages nor a clock in common with other hosts. Its own host it cannot watch; for those who
    can, it lets a heart beat in the directory `hearts` (unless `timeout_s` is 0).

    Make it before MPI begins: it is a fork, and it is the child that goes on.
    """

    def __init__(self, file: Path, timeout_s: float = 0.0, hearts: Path | None = None):
        reader, self._writer = os.pipe()
        rank = os.fork()
        if rank:
            os.close(self._writer)
            _watch(reader, file, rank, timeout_s, Heart(hearts, rank) if hearts and timeout_s else None)
        die_with_parent(signal.SIGKILL)  # stopped or not
        os.close(reader)

    def introduce(self, name: str) -> None:
        """Give the witness this rank's name. Raises UserError where the pipe to it cannot be written."""
        with naming("the pipe to the witness of this rank"):
            self._tell(name)

    def dismiss(self) -> None:
        """This rank has done its work, or has told its error itself."""
        with contextlib.suppress(OSError):  # harmless: of what is said of a rank, its own words and its exit status count first
            self._tell(".")

    def _tell(self, word: str) -> None:
        os.write(self._writer, f"{word}\n".encode())


def _watch(reader: int, file: Path, rank: int, timeout_s: float, heart: Heart | None) -> NoReturn:
    """The witness's own life."""
    die_with_parent()  # schedulers may end what has started the ranks of a host, and not the ranks, which would wait for those of others
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    said, ended = _listen(reader, rank, timeout_s, heart)
    if not ended:
        os.kill(rank, signal.SIGKILL)
    words = _last_words(said, ended, timeout_s)
    if words and (heart is None or heart.file.exists()):  # else the job has been given up, and another may have begun
        with contextlib.suppress(OSError):  # harmless: what has started the rank sees its end as well
            leave(file, words)
    if heart:
        heart.stop()
    _end_like(os.waitpid(rank, 0)[1])


def _end_like(status: int) -> NoReturn:
    """Exit as another process did, by the same signal if it was one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _last_words(said: list[str], ended: bool, timeout_s: float) -> LastWords | None:
    """On a rank that has ended after it said this, or that stands still; None where it was to end."""
    name = said[0] if said else f"a rank on {socket.gethostname()}"
    if not ended:
        stopped = f"{name} stood still for more than {timeout_s:g} s: it was stopped from outside (SIGSTOP) and then killed"
        return LastWords(f"{stopped}, see --rank-timeout", lost=True)
    if said[-1:] == ["."]:
        return None
    killed = "it was killed from outside, often for want of memory, or broke down in a library"
    return LastWords(f"{name} died without a word: {killed}", lost=True)


def _listen(reader: int, rank: int, timeout_s: float, heart: Heart | None) -> tuple[list[str], bool]:
    """(lines, ended): what the rank has said until it ended, or until it had been stopped for too long.

    Time is counted in looks: a witness that was stopped itself, with all its host perhaps, has not looked.
    """
    said, look_s, stopped_s = b"", min(_LOOK_S, timeout_s / 10), 0.0
    if heart:
        heart.introduce("")
    while True:
        if select.select([reader], [], [], look_s or None)[0]:
            words = os.read(reader, 4096)
            if not words:
                return said.decode().splitlines(), True
            if heart and not said:
                heart.introduce(words.decode().partition("\n")[0])
            said += words
            continue
        stopped_s = stopped_s + look_s if _is_stopped(rank) else 0.0
        if stopped_s > timeout_s:
            return said.decode().splitlines(), False
        if heart:
            heart.beat()


def _is_stopped(process: int) -> bool:
    """Whether it has been stopped by a signal (Linux; elsewhere nobody can say)."""
    try:
        with open(f"/proc/{process}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False  # harmless: it has just ended, or there is no /proc
