"""Paths in tables such as feats.scp and wav.scp.

Relative paths are relative to the directory in which a recipe runs, as in Kaldi, so a moved or copied recipe
directory uses its own archives. If such a table is read from another directory, the recipe directory is
searched above the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pyasr.base.files.pipes import is_command


def as_named(path: Path) -> Path:
    """The form of `path` in a table: as given, relative to the current directory; absolute if it has `..`."""
    return Path(path) if ".." not in Path(path).parts else Path(path).absolute()


def root_of(table: Path, entries: Iterable[str]) -> Path:
    """The directory to which relative paths in a table refer; empty for the current one.

    It is the first directory that contains the folder of the first relative path, among: the current
    directory, if the table is in or below it, and the directories above the table, nearest first. If there is
    none, it is the current directory.
    """
    folder = next((folder for entry in entries if (folder := _folder(entry))), None)
    if folder is None:
        return Path()
    here, above = Path.cwd(), Path(table).resolve().parents
    found = next(
        (root for root in ([here] if here in above else []) + list(above) if os.path.isdir(root / folder)),
        here,
    )
    is_here = found == here or os.path.isdir(folder) and os.path.samefile(found / folder, folder)
    return Path() if is_here else found


def placed(root: Path, entry: str) -> str:
    """An entry (FILE, FILE:OFFSET) with a path relative to the current directory; commands are unchanged."""
    return entry if root == Path() or is_command(entry) else str(root / entry)


def _folder(entry: str) -> str:
    """The folder of a relative path; '' for other entries."""
    return "" if entry.startswith("/") or is_command(entry) else os.path.dirname(entry)
