"""Existence of files and directories, and removal of directories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyasr.base.system_errors import is_absence


def existing_part(path: Path) -> Path:
    """`path` itself, or its nearest existing parent directory."""
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def is_there(path: Path) -> bool:
    """Whether a file, directory or link of this name exists. Unlike `os.path.lexists`, raises OSError if that
    cannot be determined."""
    try:
        os.lstat(path)
    except OSError as error:
        if not is_absence(error):
            raise
        return False
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory and its content. OSErrors name the full path, unlike those of `shutil.rmtree`."""

    def refuse(function, path, raised) -> None:
        error = raised[1]
        error.filename = str(path)
        raise error

    shutil.rmtree(directory, onerror=refuse)
