"""How a job's ranks are known to be there, and their hosts with them: each has a file that is touched again and again.

    on a rank's host         heart = Heart(hearts_of(spec)); heart.introduce("rank 1 of 4 on node7"); heart.beat() ...; heart.stop()
    where the job was begun  ear = Ear(hearts_of(spec), num_ranks=4, timeout_s=600); silent = ear.listen() ...

The files lie beside the job's log, on the filesystem that all hosts share. When a host freezes, or its network is cut, they stay as they
are. Clocks of different hosts are not compared: the listener counts how often it has looked in vain. So one that was frozen itself, or
that waits for the filesystem, takes nobody for lost.

A job that a scheduler begins again has other ranks; what its earlier ones have left is removed by its runner.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 5.0  # between two looks at the files, at most
_LEAST_TIMEOUT_S = 5.0  # a busy host may well leave a process waiting for a second or two
_LEAST_BEGIN_S = 60.0  # for all ranks to begin once one has: Python and its libraries may come over the network


def hearts_of(spec: Path) -> Path:
    """The directory of the files of the job with this spec."""
    return Path(spec).with_suffix(".alive")


def hearts_in(directory: Path) -> list[Path]:
    """The files in it: of ranks that are there, and of those that were killed with their witnesses."""
    try:
        return [Path(directory) / name for name in os.listdir(directory)]
    except OSError:
        return []  # harmless: nobody has begun, or it will be looked at again


def forget(hearts: list[Path]) -> None:
    """Those of ranks that are no more."""
    for file in hearts:
        with contextlib.suppress(OSError):
            file.unlink()


def beat_for(hearts: list[Path]) -> None:
    """Of ranks that stand still, and are known to be there."""
    for file in hearts:
        with contextlib.suppress(OSError):
            os.utime(file)


class Heart:
    """The file of one rank, HOST.PROCESS in `directory`, which holds the rank's name. What goes wrong with it is harmless: the rank
    itself has not suffered."""

    def __init__(self, directory: Path, process: int):
        self.file = Path(directory) / f"{socket.gethostname()}.{process}"

    def introduce(self, name: str) -> None:
        """From now on the rank counts, under this name."""
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(name, encoding="utf-8")

    def beat(self) -> None:
        """The rank's host is there. This takes no room on a disk that is full."""
        beat_for([self.file])

    def stop(self) -> None:
        """Nothing more will be heard, and nothing is wrong with that."""
        forget([self.file])


@dataclass(frozen=True)
class Silence:
    """Ranks that are lost: how many, and a sentence on them."""

    num_ranks: int
    sentence: str


class Ear:
    """Listens to the hearts of a job of `num_ranks` ranks; `look_s` is the time between two looks."""

    def __init__(self, directory: Path, num_ranks: int, timeout_s: float):
        self.directory, self.num_ranks, self.timeout_s = Path(directory), num_ranks, max(timeout_s, _LEAST_TIMEOUT_S)
        self.begin_s, self.look_s = max(timeout_s, _LEAST_BEGIN_S), min(_LOOK_S, self.timeout_s / 10)
        self._heard: dict[str, int] = {}  # the time of the last touch, by a clock of somewhere
        self._silent_s: dict[str, float] = {}
        self._names: set[str] = set()
        self._waited_s = 0.0

    def listen(self) -> Silence | None:
        """To be called every `look_s` seconds: ranks that have been silent for too long, if any."""
        heard = self._look()
        self._silent_s = {file: self._silent_s.get(file, 0.0) + self.look_s if self._heard.get(file) == touched else 0.0
                          for file, touched in heard.items()}  # fmt: skip
        if not heard.keys() & self._heard.keys():  # none of those before is there: the job begins, or begins again
            self._names, self._waited_s = set(), 0.0
        self._heard = heard
        self._names |= heard.keys()
        return self._lost() or self._missing()

    def _look(self) -> dict[str, int]:
        """When each file was touched. It is opened for that, because network filesystems then ask the server."""
        found = {}
        for file in hearts_in(self.directory):
            with contextlib.suppress(OSError), file.open("rb") as f:
                found[file.name] = os.fstat(f.fileno()).st_mtime_ns
        return found

    def _lost(self) -> Silence | None:
        """Those who have not been heard for too long, and with the first of them those who will follow in a moment."""
        if max(self._silent_s.values(), default=0.0) <= self.timeout_s:
            return None
        names = sorted(self._name(file) for file, seconds in self._silent_s.items() if seconds > self.timeout_s - 2 * self.look_s)
        told = f"nothing was heard for more than {self.timeout_s:g} s: the host stands still, or is cut off from the network"
        return Silence(len(names), f"{', '.join(names)}: {told}, see --rank-timeout")

    def _missing(self) -> Silence | None:
        """Those who have not begun, although others have long ago."""
        num_missing = self.num_ranks - len(self._names)
        self._waited_s += self.look_s if self._names and num_missing > 0 else 0.0
        if num_missing <= 0 or self._waited_s <= self.begin_s:
            return None
        begun = sorted({name.rpartition(".")[0] for name in self._names})
        return Silence(num_missing, f"{num_missing} of {self.num_ranks} ranks did not begin within {self.begin_s:g} s of the first; "
                                    f"others did on {', '.join(begun)}")  # fmt: skip

    def _name(self, file: str) -> str:
        with contextlib.suppress(OSError):
            if name := (self.directory / file).read_text(encoding="utf-8"):
                return name
        return f"a rank on {file.rpartition('.')[0]}"
