"""Says which rank was lost first. A rank killed from outside cannot; and mpiexec, which then kills all others, may name any of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path


class Witness:
    """A small process that waits for the end of this one by a pipe, and puts it down in `file` unless it was dismissed before.

    Make it before MPI begins: it is a fork. Ranks append to one file; the first line is the first death.
    """

    def __init__(self, file: Path):
        reader, self._writer = os.pipe()
        if os.fork() == 0:
            os.close(self._writer)
            _watch(reader, file)
        os.close(reader)

    def introduce(self, name: str) -> None:
        """How this rank is to be called."""
        os.write(self._writer, f"{name}\n".encode())

    def dismiss(self) -> None:
        """This rank has done its work, or has told its error itself."""
        os.write(self._writer, b".\n")


def _watch(reader: int, file: Path) -> None:
    """The witness's own life; does not return. It holds none of the rank's connections, so that mpiexec sees those close."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(reader, 0)
        os.closerange(1, 65536)
        with os.fdopen(0, encoding="utf-8") as lines:
            said = lines.read().splitlines()
        if said and said[-1] != ".":
            sentence = f"{said[0]} died without a word: it was killed from outside, often for want of memory, or broke down in a library\n"
            target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(target, sentence.encode())
    finally:
        os._exit(0)
