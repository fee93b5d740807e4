"""Writing of files and directories that survive a power failure. All renames of outputs are done here.

    write, fsync of the file, rename, fsync of the directory

Without the first fsync, a file may be empty under its new name; without the second, the rename may be lost.
Some filesystems do not support fsync of directories, and a directory without read permission cannot be opened
for it; there, a rename is as durable as the filesystem makes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from pyasr.base.system_errors import keeping_name

_NO_FSYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def sync(path: Path) -> None:
    """fsync a file, or the names in a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            error.filename = str(path)
            raise
    finally:
        os.close(opened)


def sync_tree(directory: Path) -> None:
    """fsync everything below a directory, files before directories."""
    folders = [directory]
    for around, names, files in os.walk(directory, onerror=_refuse):
        folders += [Path(around, name) for name in names if not os.path.islink(Path(around, name))]
        for path in (Path(around, name) for name in files):
            if path.is_file() and not path.is_symlink():
                sync(path)
    for folder in reversed(folders):
        sync(folder)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, replacing a file of the new name, and fsync the parent directories."""
    source, target = Path(source), Path(target)
    os.replace(source, target)
    for folder in dict.fromkeys([target.parent, source.parent]):
        # harmless: a directory without read permission cannot be opened for fsync
        with contextlib.suppress(PermissionError):
            sync(folder)


def copy(source: Path, target: Path) -> None:
    """Copy a file or link with its time and mode. The copy is renamed to `target` when it is complete."""
    scratch = target.with_name(f".copy.{os.getpid()}.tmp")
    try:
        with keeping_name(target):
            shutil.copy2(source, scratch, follow_symlinks=False)
        if not scratch.is_symlink():
            sync(scratch)
        rename(scratch, target)
    finally:
        with contextlib.suppress(OSError):  # harmless: it was renamed, or the first error is reported
            scratch.unlink()


def _refuse(error: OSError) -> None:
    raise error
