"""What is there, and directories that are not there yet."""

from __future__ import annotations

import os
from pathlib import Path

from pyasr.base.system_errors import is_absence


def existing_part(path: Path) -> Path:
    """`path` itself, or the nearest directory above it that is there, in which it would be made."""
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def is_there(path: Path) -> bool:
    """Whether there is a file, directory or link of this name. Raises OSError where that cannot be seen, as `os.path.lexists` does not."""
    try:
        os.lstat(path)
    except OSError as error:
        if not is_absence(error):
            raise
        return False
    return True
