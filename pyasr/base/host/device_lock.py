"""Locks on the GPUs of this host: one per GPU, held while a job or the ranks of a job use it.

    (lock,) = claim(
        [["5d7c...", "91ab..."]], {"5d7c...": "GPU 0", "91ab...": "GPU 1"}, Path("exp/dnn/log/train.log")
    )
    ...
    lock.release()

The locks are those of flock(2), which the kernel releases when the process ends. There is one lock file per
GPU, with one line of JSON per holder. The files are in /tmp/pyasr-UID, or in the directory named by
PYASR_LOCKS; not in $TMPDIR, because schedulers set it per job.

A runner that allocates GPUs to its jobs holds their locks and passes their names to the jobs in an
environment variable (`held_for_a_job`). Processes of the job lock the same GPUs again, one level below the
runner's lock: the job is not refused, but its ranks and programs that run side by side in it do not share a
GPU.
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
_HELD = "PYASR_GPUS_HELD"  # GPUs that enclosing runners hold for this process, one entry per GPU and runner
PATIENCE_S = 3.0  # a killed process needs a moment to release its GPU
_LOOK_S = 0.1


@dataclass(frozen=True)
class Holder:
    """Holder of a lock: its process, the log of its job, and the time at which it took the lock."""

    pid: int
    host: str
    log: str
    since: str

    def lives(self) -> bool:
        """Whether a process with this ID exists on this host."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # harmless: the process exists and belongs to another user
        return True

    def __str__(self):
        return f"process {self.pid} on {self.host} since {self.since} (log: {self.log})"


@dataclass(frozen=True)
class DeviceLock:
    """A lock that this process holds; `file` is the descriptor of the open lock file."""

    device: str
    file: int

    def release(self) -> None:
        """Release the device, even if a process forked from this one still has the file open."""
        fcntl.flock(self.file, fcntl.LOCK_UN)
        os.close(self.file)


def claim(
    choices: Sequence[Sequence[str]],
    names: Mapping[str, str],
    log: Path,
    share: bool = False,
    least: int | None = None,
    patience_s: float = PATIENCE_S,
) -> list[DeviceLock]:
    """Lock one free device from each of these lists, in order. With `share`, if no device of a list is free,
    lock the one that has been assigned to the fewest of the preceding lists.

    names  names of the devices in messages
    log    log of the requesting job, shown to other users of the device
    least  number of lists that must get a device [all]; the first list without one, and all after it, get
           none

    Locks are taken all at once or not at all, so that one of two processes that request several devices
    succeeds. Raises UserError if too few devices are free for `patience_s` seconds.
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
    """Environment variables that pass these locks of the runner to its job."""
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
            locks.append(found or _lock_shared(devices[0], log))
    return locks


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Exclude other processes of this user from taking locks."""
    file = _open(_directory() / "choosing")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _lock(device: str, log: Path, share: bool) -> DeviceLock | None:
    """An exclusive lock on a free device, or a shared lock with `share`; None if the device is in use."""
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


def _lock_shared(device: str, log: Path) -> DeviceLock:
    """A shared lock on a device that others share; if another process holds it exclusively, the file is
    opened but not locked."""
    file = _open(_path(device))
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _introduce(file, log)
    return DeviceLock(device, file)


def _introduce(file: int, log: Path) -> None:
    holder = Holder(
        os.getpid(), socket.gethostname(), str(Path(log).absolute()), time.strftime("%Y-%m-%d %H:%M:%S")
    )
    with contextlib.suppress(OSError):  # harmless on a full disk: the lock is valid without its record
        os.write(file, (json.dumps(asdict(holder)) + "\n").encode())


def _holder(device: str) -> Holder | None:
    """Holder of a locked device: the last one that is alive, or the last one; None if unknown."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        holders = [
            Holder(**json.loads(line)) for line in _path(device).read_text(encoding="utf-8").splitlines()
        ]
        return next(
            (holder for holder in reversed(holders) if holder.lives()), holders[-1] if holders else None
        )
    return None


def _refusal(choices: Sequence[Sequence[str]], ours: set[str], names: Mapping[str, str]) -> UserError:
    """The error for the last of these lists, which found no free device although those before it did."""
    others = list(dict.fromkeys(device for devices in choices for device in devices if device not in ours))
    if not others:
        raise ValueError("more devices requested than available")
    more = (
        ""
        if len(others) == 1
        else f", {len(others) - 1} more as well"
        if len(others) > 2
        else f", {names[others[1]]} as well"
    )
    todo = (
        "wait until it ends, select another GPU with CUDA_VISIBLE_DEVICES, or share it with "
        "--share-devices true"
    )
    return UserError(
        f"{names[others[0]]} ({others[0]}) is used by {_holder(others[0]) or 'another process'}{more}; {todo}"
    )


def _held() -> list[str]:
    return [device for device in os.environ.get(_HELD, "").split(",") if device]


def _key(device: str) -> str:
    """The UUID of a device as part of a file name; the driver's programs print it as `GPU-5d7c...`, torch as
    `5d7c...`."""
    return re.sub(r"[^\w.-]", "_", device.removeprefix("GPU-").lower())


def _path(device: str) -> Path:
    return _directory() / f"gpu.{_key(device)}{'.inner' * _held().count(_key(device))}"


def _directory() -> Path:
    named = os.environ.get(DIRECTORY)
    path = Path(named or f"/tmp/pyasr-{os.getuid()}")
    with _refusing_unusable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.lstat().st_uid
    if not named and (owner != os.getuid() or path.is_symlink()):
        raise UserError(
            f"{path}: the directory of GPU locks belongs to another user; set {DIRECTORY} to a directory of "
            "your own"
        )
    return path


def _open(path: Path) -> int:
    with _refusing_unusable(path):
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def _refusing_unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"{path}: {why}, so that GPUs cannot be locked; set {DIRECTORY} to another directory"
        ) from None
