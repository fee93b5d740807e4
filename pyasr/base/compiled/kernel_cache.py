"""Where numba keeps compiled kernels: for each kind of processor in a directory of its own.

numba compiles for the processor at hand. Its index of a module's kernels is one file for all processors; two that write it at the same time
on a shared file system can leave one with the other's code. `find_a_place` has to be called before numba is imported, which reads
NUMBA_CACHE_DIR then.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from pathlib import Path

from pyasr.base.files.places import existing_part

VARIABLE = "NUMBA_CACHE_DIR"
_TEMPORARY = Path("/tmp")  # not $TMPDIR, of which schedulers give every job one of its own
_PACKAGES = Path(__file__).parents[2]
_OF_PROCESSOR = re.compile(r"cpu-[0-9a-f]{8}")
_PROCESSOR, _PROCESSOR_BYTES = Path("/proc/cpuinfo"), 1 << 13  # which hold the first processor's entry
_KINDS = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")  # x86 and ARM
CHOSEN = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")  # of numba's own variables those that name another processor to compile for


def find_a_place() -> None:
    """Set NUMBA_CACHE_DIR to a directory for this kind of processor: in the one that the variable names, else beside pyasr's sources, in
    the user's cache or in /tmp/pyasr-numba-UID, whichever of these is the first that can be written.

    Raises ImportError if the last is not the user's alone: kernels are read from it as programs are.
    """
    os.environ[VARIABLE] = str(_parent() / f"cpu-{_processor()}")


def _parent() -> Path:
    """The directory in which each kind of processor has one."""
    if given := os.environ.get(VARIABLE):  # by the user, or by the process that started this one, on whatever processor
        return Path(given).parent if _OF_PROCESSOR.fullmatch(Path(given).name) else Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    for place in (_PACKAGES / "__pycache__", cache / "pyasr-numba"):
        if place.is_absolute() and _is_writable(place):
            return place
    own = _TEMPORARY / f"pyasr-numba-{os.getuid()}"
    if not _is_ours_alone(own):
        raise ImportError(f"{own}: no directory that is yours alone, to keep compiled kernels in; name one by {VARIABLE}")
    return own


def _processor() -> str:
    """A digest of the kind of processor that numba compiles for."""
    of_system = [line for line in _entry_of_first().splitlines() if line.partition(":")[0].strip() in _KINDS]
    told = [os.uname().machine, *of_system, *(str(os.environ.get(name)) for name in CHOSEN)]
    return f"{zlib.crc32(chr(10).join(told).encode()):08x}"


def _entry_of_first() -> str:
    """What the system tells of the first processor; '' where it tells nothing."""
    try:
        with _PROCESSOR.open("rb", buffering=0) as f:
            return f.read(_PROCESSOR_BYTES).decode("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return ""  # harmless: numba then tells processors apart by its index


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
