"""Main memory of this host, and the part of it that control groups (of Slurm or a container) and resource
limits leave to this process."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from pathlib import Path

_NAMES_IN_GROUPS = [
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
]
_OWN_LIMITS = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def free_bytes() -> int | None:
    """Bytes that this process can still allocate; None if unknown."""
    return _least(_of_host("MemAvailable:"), free_in_group())


def total_bytes() -> int | None:
    """Bytes of the host, or the limit of a control group if that is lower; None if unknown."""
    return _least(_of_host("MemTotal:"), limit_of_group())


def free_in_group(root: Path = _ROOT, own: Path = _OWN) -> float | None:
    """Bytes left by the limits of this process's control groups; None if it has none."""
    return _in_groups(_left_in, root, own)


def left_in_limits() -> float:
    """Bytes left by the limits of this process (`ulimit -v`, `ulimit -d`); infinite if none or unknown."""
    limits = {field: resource.getrlimit(kind)[0] for kind, field in _OWN_LIMITS.items()}
    try:
        taken = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        )
        left = [
            most - 1024 * int(taken[field].split()[0])
            for field, most in limits.items()
            if most != resource.RLIM_INFINITY
        ]
        return min(left, default=math.inf)
    except (OSError, ValueError, KeyError):
        return math.inf  # harmless: not Linux


def limit_of_group(root: Path = _ROOT, own: Path = _OWN) -> float | None:
    """Lowest memory limit of this process's control groups in bytes; None if it has none."""
    return _in_groups(_limit_of, root, own)


def _least(*found: float | None) -> int | None:
    return min((int(size) for size in found if size is not None and size != math.inf), default=None)


def _of_host(name: str) -> int | None:
    try:
        with open("/proc/meminfo", encoding="utf-8") as f:
            return next(1024 * int(line.split()[1]) for line in f if line.startswith(name))
    except (OSError, StopIteration):
        return None  # harmless: not Linux, so the value is unknown


def _in_groups(bytes_of: Callable[[Path], float], root: Path, own: Path) -> float | None:
    """Minimum of `bytes_of` over this process's control groups and their parents."""
    try:
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
        tops = {"": root, "memory": root / "memory"}  # of versions 2 and 1
        own_groups = [
            (tops[kind], tops[kind] / place.lstrip("/")) for _, kind, place in lines if kind in tops
        ]
        groups = [
            group
            for top, last in own_groups
            for group in (last, *last.parents)
            if top in (group, *group.parents)
        ]
        return min(map(bytes_of, groups), default=None)
    except (OSError, ValueError, KeyError):
        return None  # harmless: a limit that cannot be read is unknown


def _left_in(group: Path) -> float:
    """Bytes that a group may still allocate; inactive file cache counts as free."""
    for limit, taken, cached in _NAMES_IN_GROUPS:
        if (most := _read_limit(group / limit)) != math.inf:
            numbers = dict(
                line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines()
            )
            return most - int((group / taken).read_text(encoding="utf-8")) + int(numbers[cached])
    return math.inf


def _limit_of(group: Path) -> float:
    return min(_read_limit(group / limit) for limit, *_ in _NAMES_IN_GROUPS)


def _read_limit(path: Path) -> float:
    """A limit in bytes; infinite if there is none."""
    text = path.read_text(encoding="utf-8").strip() if path.exists() else "max"
    return math.inf if text == "max" else int(text)
