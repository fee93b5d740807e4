"""Looks at files and directories, and removal of directories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyasr.base.system_errors import is_absence


def existing_part(path: Path) -> Path:
    """`path` itself, or the nearest directory above it that is there, in which it would be made."""
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def is_there(path: Path) -> bool:
    """Whether a file, directory or link of this name exists. Unlike `os.path.lexists`, raises OSError where that is unknown."""
    try:
        os.lstat(path)
    except OSError as error:
        if not is_absence(error):
            raise
        return False
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory with all it holds. An OSError names the whole path, as those of `shutil.rmtree` do not."""

    def refuse(function, path, raised) -> None:
        error = raised[1]
        error.filename = str(path)
        raise error

    shutil.rmtree(directory, onerror=refuse)
