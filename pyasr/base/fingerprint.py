"""Fingerprints: what identifies the content of files and directories, whatever made them and whenever.

Two things with the same content have the same fingerprint: times, machines and commands play no part.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

DONE = ".done.json"
_BLOCK_BYTES, _MAX_BLOCKS = 1 << 20, 256
_MISSING = "missing"


def fingerprint(path: Path) -> str:
    """Of a file; of a table (.scp) together with the stage outputs that it points into; of a directory; 'missing' if there is nothing.

    A stage output is known by the content it had when it was completed, any other directory is read.
    """
    path = Path(path)
    if path.is_dir():
        return (read_done(path) or {}).get("content") or directory_fingerprint(path)
    if not path.exists():
        return _MISSING
    digest = _file_digest(path)
    for directory in _outputs_pointed_into(path) if path.suffix == ".scp" else ():
        digest.update(fingerprint(directory).encode())
    return digest.hexdigest()[:16]


def directory_fingerprint(directory: Path) -> str:
    """Of the names and contents of all files in a directory, but for hidden ones and its log/."""
    digest = hashlib.sha256()
    names = sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*") if path.is_file())
    for name in names:
        if not name.startswith(("log/", ".")):
            digest.update(f"{name}\0{_file_digest(Path(directory) / name).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def read_done(directory: Path) -> dict | None:
    """The content of a complete output's done-file, or None."""
    try:
        done = json.loads((Path(directory) / DONE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # harmless: an output without a readable done-file is simply not complete
    complete = isinstance(done, dict) and isinstance(done.get("options"), dict) and isinstance(done.get("inputs"), dict)
    return done if complete else None


def _file_digest(path: Path):
    """SHA-256 of a file; of one above 256 MiB, of its size and 256 blocks of 1 MiB, evenly spaced from its first to its last."""
    size, digest = path.stat().st_size, hashlib.sha256()
    if size > _BLOCK_BYTES * _MAX_BLOCKS:
        digest.update(str(size).encode())
    with path.open("rb") as f:
        for begin in _blocks(size):
            f.seek(begin)
            digest.update(f.read(_BLOCK_BYTES))
    return digest


def _blocks(size: int) -> Iterable[int]:
    if size <= _BLOCK_BYTES * _MAX_BLOCKS:
        return range(0, size, _BLOCK_BYTES)
    return (i * (size - _BLOCK_BYTES) // (_MAX_BLOCKS - 1) for i in range(_MAX_BLOCKS))


def _outputs_pointed_into(table: Path) -> list[Path]:
    """Stage outputs that hold files named in the second column of a table; commands and paths of other places are passed over."""
    with table.open(encoding="utf-8", errors="surrogateescape") as f:
        directories = {os.path.dirname(place) for line in f for place in line.split(maxsplit=1)[1:]}
    return [Path(directory) for directory in sorted(directories) if directory and (Path(directory) / DONE).exists()]
