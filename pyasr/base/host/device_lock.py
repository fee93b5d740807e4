"""Who uses which GPU of this host: a lock for each, held while a job or the ranks of a job use it.

    (lock,) = claim([["5d7c...", "91ab..."]], {"5d7c...": "GPU 0", "91ab...": "GPU 1"}, Path("exp/dnn/log/train.log"))
    ...
    lock.release()

Locks are those of flock(2), which vanish with the process, however it ends. Their files, one for each GPU, hold a line of JSON on who has
it. They lie in /tmp/pyasr-UID, or where PYASR_LOCKS says; not in $TMPDIR, of which schedulers give every job one of its own.

A runner that has GPUs for its jobs holds their locks and tells the jobs which by a variable (`held_for_a_job`). What a job begins locks
them once more, below the runner's lock: it is not refused, yet ranks, and programs that run side by side in one job, are kept apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyasr.base.errors import UserError

DIRECTORY = "PYASR_LOCKS"
_HELD = "PYASR_GPUS_HELD"  # GPUs that runners around this process hold for it, each as often as there are such runners
PATIENCE_S = 3.0  # a process that was killed needs a moment to give back its GPU
_LOOK_S = 0.1


@dataclass(frozen=True)
class Holder:
    """Of a lock: its process, the log of its job, and when it took it."""

    pid: int
    host: str
    log: str
    since: str

    def lives(self) -> bool:
        """Whether there still is such a process here."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # harmless: it is there, and another user's
        return True

    def __str__(self):
        return f"process {self.pid} on {self.host} since {self.since} (log: {self.log})"


@dataclass(frozen=True)
class DeviceLock:
    """One that this process has; `file` is its open file."""

    device: str
    file: int

    def release(self) -> None:
        """Others may have the device now, even where a process that was forked from this one still has the file open."""
        fcntl.flock(self.file, fcntl.LOCK_UN)
        os.close(self.file)


def claim(choices: Sequence[Sequence[str]], names: Mapping[str, str], log: Path, share: bool = False, least: int | None = None,
          patience_s: float = PATIENCE_S) -> list[DeviceLock]:  # fmt: skip
    """For each of these lists of devices in turn a lock on one that nobody uses; with `share`, if there is none, on one that the fewest
    of the lists before have got.

    names  what the devices are called in messages
    log    of the job that wants them, for others
    least  for how many lists there must be one [all]; if so, lists from the first on that finds none may stay without

    All are had at once or none, so that of two that want several at a time one gets them. Raises UserError, after `patience_s` seconds,
    where others have too many.
    """
    least, deadline = len(choices) if least is None else least, time.monotonic() + patience_s
    while len(locks := _claim_at_once(choices, log, share)) < least:
        for lock in locks:
            lock.release()
        if time.monotonic() >= deadline:
            raise _refusal(choices[: len(locks) + 1], {lock.device for lock in locks}, names)
        time.sleep(_LOOK_S)
    return locks


def held_for_a_job(locks: Sequence[DeviceLock]) -> dict[str, str]:
    """What tells a job, as a part of its environment, that its runner has these locks for it."""
    return {_HELD: ",".join([*_held(), *(_key(lock.device) for lock in locks)])}


def _claim_at_once(choices: Sequence[Sequence[str]], log: Path, share: bool) -> list[DeviceLock]:
    locks: list[DeviceLock] = []
    with _alone():
        for devices in choices:
            taken = Counter(lock.device for lock in locks)
            devices = sorted(devices, key=lambda device: taken[device])
            found = next(filter(None, (_lock(device, log, share) for device in devices)), None)
            if not found and not share:
                break
            locks.append(found or _lock_beside_others(devices[0], log))
    return locks


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """While no other process of this user takes locks."""
    file = _open(_directory() / "choosing")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _lock(device: str, log: Path, share: bool) -> DeviceLock | None:
    """A lock on a device that nobody uses, which other locks can stand beside with `share`."""
    file = _open(_path(device))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    os.ftruncate(file, 0)
    _introduce(file, log)
    if share:
        fcntl.flock(file, fcntl.LOCK_SH)
    return DeviceLock(device, file)


def _lock_beside_others(device: str, log: Path) -> DeviceLock:
    """A lock beside those of others who share the device. Beside one who does not, nothing is locked."""
    file = _open(_path(device))
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _introduce(file, log)
    return DeviceLock(device, file)


def _introduce(file: int, log: Path) -> None:
    holder = Holder(os.getpid(), socket.gethostname(), str(Path(log).absolute()), time.strftime("%Y-%m-%d %H:%M:%S"))
    with contextlib.suppress(OSError):  # harmless on a full disk: the lock holds all the same
        os.write(file, (json.dumps(asdict(holder)) + "\n").encode())


def _holder(device: str) -> Holder | None:
    """Who has a device that is locked: the last who took it and lives, or the last; None where that is not known."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        holders = [Holder(**json.loads(line)) for line in _path(device).read_text(encoding="utf-8").splitlines()]
        return next((holder for holder in reversed(holders) if holder.lives()), holders[-1] if holders else None)
    return None


def _refusal(choices: Sequence[Sequence[str]], ours: set[str], names: Mapping[str, str]) -> UserError:
    """For the last of these lists there was nothing left, although for those before there was."""
    others = list(dict.fromkeys(device for devices in choices for device in devices if device not in ours))
    if not others:
        raise ValueError("more devices are wanted than there are")
    more = "" if len(others) == 1 else f", {len(others) - 1} more as well" if len(others) > 2 else f", {names[others[1]]} as well"
    todo = "wait until that has ended, allow another by CUDA_VISIBLE_DEVICES, or share it with --share-devices true"
    return UserError(f"{names[others[0]]} ({others[0]}) is used by {_holder(others[0]) or 'another process'}{more}; {todo}")


def _held() -> list[str]:
    return [device for device in os.environ.get(_HELD, "").split(",") if device]


def _key(device: str) -> str:
    """What stands for a device in names of files: its UUID has the form `GPU-5d7c...` for the driver's programs, `5d7c...` for torch."""
    return re.sub(r"[^\w.-]", "_", device.removeprefix("GPU-").lower())


def _path(device: str) -> Path:
    return _directory() / f"gpu.{_key(device)}{'.inner' * _held().count(_key(device))}"


def _directory() -> Path:
    named = os.environ.get(DIRECTORY)
    path = Path(named or f"/tmp/pyasr-{os.getuid()}")
    with _told_of(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.lstat().st_uid
    if not named and (owner != os.getuid() or path.is_symlink()):
        raise UserError(f"{path}: it is to say who uses which GPU, but another user has made it; name a directory of yours by {DIRECTORY}")
    return path


def _open(path: Path) -> int:
    with _told_of(path):
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"{path}: {why}, so that it cannot be seen who uses which GPU; name another directory by {DIRECTORY}") from None
