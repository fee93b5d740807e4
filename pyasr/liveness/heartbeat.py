"""Heartbeat of a job's ranks and their hosts: each rank has a file that is touched periodically.

    on a rank's host         heart = Heartbeat(hearts_of(spec)); heart.introduce("rank 1 of 4 on node7")
                             heart.beat() ...; heart.stop()
    where the job was begun  ear = HeartbeatReader(hearts_of(spec), num_ranks=4, timeout_s=600)
                             silent = ear.listen() ...

The files are next to the job's log, on the filesystem that all hosts share. If a host freezes or its network
is cut, its files are no longer touched. Clocks of different hosts are not compared: the listener counts its
own looks without a change. A listener that was suspended, or that waits for the filesystem, therefore does
not report a rank as lost.

If a scheduler restarts a job, the job has new ranks; its runner removes the files of the previous ones.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 5.0  # maximum interval between two looks at the files
_MIN_TIMEOUT_S = 5.0  # a busy host may suspend a process for a second or two
# for all ranks to start after the first: Python and its libraries may be loaded over the network
_MIN_BEGIN_S = 60.0


def hearts_of(spec: Path) -> Path:
    """The directory of the heartbeat files of the job with this spec."""
    return Path(spec).with_suffix(".alive")


def hearts_in(directory: Path) -> list[Path]:
    """The heartbeat files: of running ranks, and of ranks killed before they could remove theirs."""
    try:
        return [Path(directory) / name for name in os.listdir(directory)]
    except OSError:
        return []  # harmless: no rank has started yet, or the next look succeeds


def forget(hearts: list[Path]) -> None:
    """Remove the files of ranks that have ended."""
    for file in hearts:
        with contextlib.suppress(OSError):
            file.unlink()


def beat_for(hearts: list[Path]) -> None:
    """Touch the files of ranks that are suspended but known to exist."""
    for file in hearts:
        with contextlib.suppress(OSError):
            os.utime(file)


class Heartbeat:
    """The heartbeat file of one rank, HOST.PROCESS in `directory`, which contains the rank's name. Errors on
    the file are ignored, because they do not affect the rank."""

    def __init__(self, directory: Path, process: int):
        self.file = Path(directory) / f"{socket.gethostname()}.{process}"

    def introduce(self, name: str) -> None:
        """Create the file with the rank's name."""
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(name, encoding="utf-8")

    def beat(self) -> None:
        """Touch the file, which works on a full disk, too."""
        beat_for([self.file])

    def stop(self) -> None:
        """Remove the file: the rank ends regularly."""
        forget([self.file])


@dataclass(frozen=True)
class Silence:
    """Lost ranks: their number, and a sentence about them."""

    num_ranks: int
    sentence: str


class HeartbeatReader:
    """Listener for the heartbeats of a job of `num_ranks` ranks; `look_s` is the interval between two looks
    in seconds."""

    def __init__(self, directory: Path, num_ranks: int, timeout_s: float):
        self.directory, self.num_ranks, self.timeout_s = (
            Path(directory),
            num_ranks,
            max(timeout_s, _MIN_TIMEOUT_S),
        )
        self.begin_s, self.look_s = max(timeout_s, _MIN_BEGIN_S), min(_LOOK_S, self.timeout_s / 10)
        # the time of the last touch, by the clock of the file server or host
        self._heard: dict[str, int] = {}
        self._silent_s: dict[str, float] = {}
        self._names: set[str] = set()
        self._waited_s = 0.0

    def listen(self) -> Silence | None:
        """Look at the files, once every `look_s` seconds; the ranks that are lost, or None."""
        heard = self._look()
        self._silent_s = {
            file: self._silent_s.get(file, 0.0) + self.look_s if self._heard.get(file) == touched else 0.0
            for file, touched in heard.items()
        }
        # none of the previous files exists: the job starts or restarts
        if not heard.keys() & self._heard.keys():
            self._names, self._waited_s = set(), 0.0
        self._heard = heard
        self._names |= heard.keys()
        return self._lost() or self._missing()

    def _look(self) -> dict[str, int]:
        """Time of the last touch of each file. Files are opened for this, because network filesystems then
        ask the server."""
        found = {}
        for file in hearts_in(self.directory):
            with contextlib.suppress(OSError), file.open("rb") as f:
                found[file.name] = os.fstat(f.fileno()).st_mtime_ns
        return found

    def _lost(self) -> Silence | None:
        """Ranks without a heartbeat for more than the timeout, and those that exceed it within two looks."""
        if max(self._silent_s.values(), default=0.0) <= self.timeout_s:
            return None
        names = sorted(
            self._name(file)
            for file, seconds in self._silent_s.items()
            if seconds > self.timeout_s - 2 * self.look_s
        )
        found = (
            f"no heartbeat for more than {self.timeout_s:g} s: the host has frozen or is cut off from "
            "the network"
        )
        return Silence(len(names), f"{', '.join(names)}: {found}, see --rank-timeout")

    def _missing(self) -> Silence | None:
        """Ranks that have not started although the first one started more than `begin_s` seconds ago."""
        num_missing = self.num_ranks - len(self._names)
        self._waited_s += self.look_s if self._names and num_missing > 0 else 0.0
        if num_missing <= 0 or self._waited_s <= self.begin_s:
            return None
        begun = sorted({name.rpartition(".")[0] for name in self._names})
        return Silence(
            num_missing,
            f"{num_missing} of {self.num_ranks} ranks did not start within {self.begin_s:g} s of the first; "
            f"others started on {', '.join(begun)}",
        )

    def _name(self, file: str) -> str:
        with contextlib.suppress(OSError):
            if name := (self.directory / file).read_text(encoding="utf-8"):
                return name
        return f"a rank on {file.rpartition('.')[0]}"
