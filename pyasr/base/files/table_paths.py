"""Paths in tables such as feats.scp and wav.scp.

Relative ones are taken from the directory where a recipe runs, as Kaldi's programs take them, so a recipe directory that is moved or copied
goes on with its own archives. Where such a table is read from elsewhere, that directory is looked for above the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pyasr.base.files.pipes import is_command


def as_named(path: Path) -> Path:
    """How a table names `path`: as it was given, relative to the current directory, or absolute where it leads out of that."""
    return Path(path) if ".." not in Path(path).parts else Path(path).absolute()


def root_of(table: Path, entries: Iterable[str]) -> Path:
    """The directory that relative paths among a table's entries begin in; empty for the current one.

    That is the current directory where the table lies in it or below, else the nearest above the table, in which the folder of the first
    relative path is found; the current one where there is none.
    """
    folder = next((folder for entry in entries if (folder := _folder(entry))), None)
    if folder is None:
        return Path()
    here, above = Path.cwd(), Path(table).resolve().parents
    found = next((root for root in ([here] if here in above else []) + list(above) if os.path.isdir(root / folder)), here)
    is_here = found == here or os.path.isdir(folder) and os.path.samefile(found / folder, folder)
    return Path() if is_here else found


def placed(root: Path, entry: str) -> str:
    """An entry, its path led from the current directory: FILE, FILE:OFFSET; commands are as they were."""
    return entry if root == Path() or is_command(entry) else str(root / entry)


def _folder(entry: str) -> str:
    """The folder of a relative path, empty of other entries."""
    return "" if entry.startswith("/") or is_command(entry) else os.path.dirname(entry)
