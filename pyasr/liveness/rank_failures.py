"""Errors of the ranks of a job: a file to which each failed rank appends one line of JSON. The first line is
reported."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class RankFailure:
    """The failure of one rank.

    sentence  what happened, and on which rank and host
    lost      the rank ended without an error of its own, so a restart can succeed
    """

    sentence: str
    lost: bool


def failure_file(spec: Path) -> Path:
    """The file of the job with this spec."""
    return Path(spec).with_suffix(".error")


def append_failure(file: Path, failure: RankFailure) -> None:
    """Append the failure by a single write."""
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(target, (json.dumps(asdict(failure)) + "\n").encode())
    os.close(target)


def first_failure(file: Path) -> RankFailure | None:
    """The first failure; None if there is none. Damaged lines are skipped: on network filesystems, hosts may
    overwrite each other's lines."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    return next((failure for line in lines if (failure := _parse(line))), None)


def _parse(line: str) -> RankFailure | None:
    try:
        return RankFailure(**json.loads(line))
    except (ValueError, TypeError):
        return None
