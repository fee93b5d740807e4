"""Says which rank was lost first. A rank killed from outside cannot; and mpiexec, which then kills all others, may name any of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from pathlib import Path

from pyasr.base.heartbeat import Heart
from pyasr.base.last_words import LastWords, leave

_LOOK_S = 5.0  # between two looks at the rank, and two beats, at most


class Witness:
    """A small process that waits for the end of this one by a pipe, and puts it down in `file` unless it was dismissed before.

    It also kills this one, and says so, when it has been stopped (SIGSTOP) for more than `timeout_s` seconds (0: never): the others
    wait for it. To know this it needs neither messages nor a clock in common with other hosts. Its own host it cannot watch; for those who
    can, it lets a heart beat in the directory `hearts` (unless `timeout_s` is 0).

    Make it before MPI begins: it is a fork. Ranks append to one file; the first line is the first death.
    """

    def __init__(self, file: Path, timeout_s: float = 0.0, hearts: Path | None = None):
        reader, self._writer = os.pipe()
        rank = os.getpid()
        heart = Heart(hearts, rank) if hearts and timeout_s else None
        witness = os.fork()
        if witness == 0:
            os.close(self._writer)
            _watch(reader, file, rank, timeout_s, heart)
        os.close(reader)
        if heart:
            threading.Thread(target=_outlive, args=(witness, heart), daemon=True).start()

    def introduce(self, name: str) -> None:
        """How this rank is to be called."""
        self._tell(name)

    def dismiss(self) -> None:
        """This rank has done its work, or has told its error itself."""
        self._tell(".")

    def _tell(self, word: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # harmless: the witness itself was killed
            os.write(self._writer, f"{word}\n".encode())


def _outlive(witness: int, heart: Heart) -> None:
    """A rank whose witness was killed goes on, and must not be taken for lost."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(witness, 0)
    heart.stop()


def _watch(reader: int, file: Path, rank: int, timeout_s: float, heart: Heart | None) -> None:
    """The witness's own life; does not return.

    It keeps the connections that the rank was started with until it has told its words: mpiexec sees them close, and kills the other ranks,
    only then, so that no death that follows comes before the first.
    """
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(reader, 0)
        said, ended = _listen(rank, timeout_s, heart)
        words = _last_words(said, ended, timeout_s)
        if words and (heart is None or heart.file.exists()):  # else the job has been given up, and another may have begun
            leave(file, words)
        if not ended:
            os.kill(rank, signal.SIGKILL)
        if heart:
            heart.stop()
    finally:
        os._exit(0)


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


def _listen(rank: int, timeout_s: float, heart: Heart | None) -> tuple[list[str], bool]:
    """(lines, ended): what the rank has said until it ended, or until it had been stopped for too long.

    Time is counted in looks: a witness that was stopped itself, with all its host perhaps, has not looked.
    """
    said, look_s, stopped_s = b"", min(_LOOK_S, timeout_s / 10), 0.0
    if heart:
        heart.introduce("")
    while True:
        if select.select([0], [], [], look_s or None)[0]:
            words = os.read(0, 4096)
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
