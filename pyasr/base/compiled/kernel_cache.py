"""The cache directory of compiled kernels: a separate one for each kind of processor.

numba compiles for the processor of the host. Its index of a module's kernels is one file for all processors;
if two hosts write it at the same time on a shared filesystem, one can get code for the other's processor.
Call `find_a_place` before numba is imported, because numba reads NUMBA_CACHE_DIR at its import.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from pathlib import Path

from pyasr.base.files.places import existing_part

VARIABLE = "NUMBA_CACHE_DIR"
_TEMPORARY = Path("/tmp")  # not $TMPDIR, because schedulers set it per job
_PACKAGES = Path(__file__).parents[2]
_OF_PROCESSOR = re.compile(r"cpu-[0-9a-f]{8}")
_PROCESSOR, _PROCESSOR_BYTES = Path("/proc/cpuinfo"), 1 << 13  # enough for the entry of the first processor
# x86 and ARM
_KINDS = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
CHOSEN = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")  # numba's variables that select another target processor


def find_a_place() -> None:
    """Set NUMBA_CACHE_DIR to a directory for this kind of processor, below the first writable one of: the
    directory given in the variable, `__pycache__` of pyasr's sources, the user's cache directory,
    /tmp/pyasr-numba-UID.

    Raises ImportError if others can access the last one: kernels in it are executed like programs.
    """
    os.environ[VARIABLE] = str(_parent() / f"cpu-{_processor()}")


def _parent() -> Path:
    """The directory with one subdirectory per kind of processor."""
    # set by the user, or by the parent process, possibly on another processor
    if given := os.environ.get(VARIABLE):
        return Path(given).parent if _OF_PROCESSOR.fullmatch(Path(given).name) else Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    for place in (_PACKAGES / "__pycache__", cache / "pyasr-numba"):
        if place.is_absolute() and _is_writable(place):
            return place
    own = _TEMPORARY / f"pyasr-numba-{os.getuid()}"
    if not _is_ours_alone(own):
        raise ImportError(
            f"{own}: not a private directory, which the cache of compiled kernels needs; set {VARIABLE} to "
            "one"
        )
    return own


def _processor() -> str:
    """Digest of the kind of processor that numba compiles for."""
    of_system = [line for line in _entry_of_first().splitlines() if line.partition(":")[0].strip() in _KINDS]
    lines = [os.uname().machine, *of_system, *(str(os.environ.get(name)) for name in CHOSEN)]
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


def _entry_of_first() -> str:
    """The entry of the first processor in /proc/cpuinfo; '' if it cannot be read."""
    try:
        with _PROCESSOR.open("rb", buffering=0) as f:
            return f.read(_PROCESSOR_BYTES).decode("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return ""  # harmless: numba's index then distinguishes processors


def _is_writable(path: Path) -> bool:
    """Whether files can be written into this directory, which numba creates if it does not exist."""
    there = existing_part(path)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def _is_ours_alone(path: Path) -> bool:
    """Whether this directory, created if it does not exist, belongs to the user, is not a link and is
    inaccessible to others."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False  # harmless: the caller reports it
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
