"""Directories that are not there yet."""

from __future__ import annotations

import os
from pathlib import Path


def existing_part(path: Path) -> Path:
    """`path` itself, or the nearest directory above it that is there, in which it would be made."""
    return next(place for place in (path, *path.parents) if os.path.exists(place))
