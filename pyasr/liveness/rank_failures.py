"""What is known of the ranks of a job that went wrong: a line of JSON for each, in a file to which all of them append. The first counts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class LastWords:
    """Of one rank.

    sentence  what has happened, and on which rank and host
    lost      it has gone without an error of its own, which would come again
    """

    sentence: str
    lost: bool


def words_of(spec: Path) -> Path:
    """The file of the job with this spec."""
    return Path(spec).with_suffix(".error")


def leave(file: Path, words: LastWords) -> None:
    """Append them, in one piece."""
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(target, (json.dumps(asdict(words)) + "\n").encode())
    os.close(target)


def first(file: Path) -> LastWords | None:
    """Of the rank that went first; None where nothing was left. Lines that are not whole do not count: on network filesystems one host
    may write over another's."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    return next((words for line in lines if (words := _parse(line))), None)


def _parse(line: str) -> LastWords | None:
    try:
        return LastWords(**json.loads(line))
    except (ValueError, TypeError):
        return None
