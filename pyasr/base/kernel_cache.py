"""Where numba keeps compiled kernels when neither pyasr's own directory nor the user's cache can be written.

That is so in a container that runs under another uid, and with a shared installation on hosts without home directories; numba refuses to
import a kernel there. `find_a_place` has to be called before numba is imported, which reads NUMBA_CACHE_DIR then.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pyasr.base.places import existing_part

VARIABLE = "NUMBA_CACHE_DIR"
_TEMPORARY = Path("/tmp")  # not $TMPDIR, of which schedulers give every job one of its own
_PACKAGES = Path(__file__).parents[1]


def find_a_place() -> None:
    """Name /tmp/pyasr-numba-UID by NUMBA_CACHE_DIR, unless that is set, or numba has a place of its own.

    Raises ImportError where the directory is not the user's alone: kernels are read from it as programs are.
    """
    own = _TEMPORARY / f"pyasr-numba-{os.getuid()}"
    if os.environ.get(VARIABLE, str(own)) != str(own) or _beside_the_kernels() or _in_the_users_cache():
        return
    if not _is_ours_alone(own):
        raise ImportError(f"{own}: no directory that is yours alone, to keep compiled kernels in; name one by {VARIABLE}")
    os.environ[VARIABLE] = str(own)


def _beside_the_kernels() -> bool:
    """Whether __pycache__ of every package can be written, or made."""
    return all(_is_writable(package.parent / "__pycache__") for package in _PACKAGES.glob("*/__init__.py"))


def _in_the_users_cache() -> bool:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache.is_absolute() and _is_writable(cache / "numba")


def _is_writable(path: Path) -> bool:
    """Whether files can be written into this directory, which numba makes if need be."""
    there = existing_part(path)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def _is_ours_alone(path: Path) -> bool:
    """Whether this directory, made if need be, is the user's and no link, and nobody else may write into it or read it."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False  # harmless: the caller tells of it
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
