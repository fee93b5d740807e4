"""Tables derived from a large file, in a memory-mapped file next to it: all jobs and threads of a host share
one copy in memory.

    tables = derived(
        Path("exp/tri1/graph/HCLG.fst"), "search", key, lambda: MappedTables({"finals": finals}, {"start": 0})
    )

The file is DIRECTORY/.NAME.KIND.KEY, hidden, so that it is not a part of an output. DIRECTORY is the
directory of the source, or PYASR_MAPPED; in the latter case the name has a digest of the path of the source.
The file has a JSON header, with the size, time and digest of the source, and the arrays, each at a multiple
of 64 bytes. It is written under another name and renamed, so a process that has mapped an earlier file
continues to read that one. If several processes need the same tables, one creates them, and the others wait
for it (flock(2)). If no file can be written (a read-only directory, a full disk), each process has the tables
in its own memory.

A file is trusted if its modification time is the one in its header. Otherwise (a copy, or a damaged file) its
checksum is verified.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pyasr.base import log
from pyasr.base.outputs.displaced_files import short_name
from pyasr.base.outputs.fingerprint import file_state, is_still
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import SystemRefusal, disk_error, naming

VARIABLE = "PYASR_MAPPED"
MIN_BYTES = 4 << 20  # minimum size of a source; a smaller source is read as fast as its mapped tables
_MAGIC, _VERSION, _ALIGNMENT = b"PYASRMAP", 1, 64
_FIXED = struct.Struct("<8sIII")  # magic, version, bytes of the JSON header, their CRC-32
_MAX_HEAD_BYTES = 1 << 20
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


@dataclass(frozen=True)
class MappedTables:
    """Named arrays, read-only, and plain values that can be stored in JSON."""

    arrays: dict[str, np.ndarray]
    values: dict = field(default_factory=dict)

    def __post_init__(self):
        for array in self.arrays.values():
            array.flags.writeable = False


def derived(
    source: Path, kind: str, key: str, make: Callable[[], MappedTables], more: Sequence[Path] = ()
) -> MappedTables:
    """The result of `make` for the file `source`, mapped from a file that is created if it is missing or out
    of date.

    kind  kind of the tables, a part of the file name
    key   digest of everything else on which the tables depend, including the version of their format
    more  further directories for the file, if the directory of the source is not writable

    For sources smaller than MIN_BYTES, `make` is called without a file. Raises the errors of `make`, and
    UserError if the source is missing.
    """
    with naming(source):
        num_bytes = source.stat().st_size
    if num_bytes < MIN_BYTES:
        return make()
    places = [_place(directory, source, kind, key) for directory in _directories(source, more)]
    for place in places:
        if found := _mapped(place, source):
            return found
    maker = _Maker(source, make)
    for place in places:
        try:
            return maker.kept_at(place)
        except SystemRefusal as error:
            if maker.has_failed:
                raise
            maker.refusals.append(str(error))
    log.warning(
        f"{source}: cannot write its tables, so each job has its own copy in memory; set {VARIABLE} to a "
        f"writable directory ({maker.refusals[0]})"
    )
    return maker.tables()


def digest_of_parts(*parts: bytes | str) -> str:
    """A short digest of the values on which tables depend, for `key`."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part.encode() if isinstance(part, str) else bytes(part)) + b"\0")
    return digest.hexdigest()[:8]


class _Maker:
    """Computes the tables of a source, at most once.

    refusals    messages of the directories in which no file could be written
    has_failed  whether the computation of the tables failed
    """

    def __init__(self, source: Path, make: Callable[[], MappedTables]):
        self._source, self._make, self.has_failed = source, make, False
        self._made: tuple[list, MappedTables] | None = None  # with the state of the source
        self.refusals: list[str] = []

    def tables(self) -> MappedTables:
        """The tables in memory."""
        return self._with_state()[1]

    def _with_state(self) -> tuple[list, MappedTables]:
        """(state of the source before the computation, tables)"""
        if self._made is None:
            self.has_failed = True
            state = file_state(self._source)
            self._made = state, self._make()
            self.has_failed = False
        return self._made

    def kept_at(self, place: Path) -> MappedTables:
        """The tables mapped from the file `place`, which is written unless another process has written it
        meanwhile. Raises SystemRefusal if it cannot be written; if the source changed during the computation,
        the tables in memory."""
        with _alone(place):
            if found := _mapped(place, self._source):
                return found
            with contextlib.suppress(OSError):  # harmless: they only take disk space
                _remove_leftovers(place, self._source)
            state, made = self._with_state()
            if not is_still(self._source, state):
                return made
            _write(place, made, state)
            return _mapped(place, self._source) or made


def _directories(source: Path, more: Sequence[Path]) -> list[Path]:
    named = os.environ.get(VARIABLE)
    return [Path(named)] if named else [source.parent, *more]


def _place(directory: Path, source: Path, kind: str, key: str) -> Path:
    whole = source.resolve()
    where = "" if directory.resolve() == whole.parent else f".{digest_of_parts(os.fsencode(whole))}"
    return directory / f".{short_name(source.name)}{where}.{kind}.{key}"


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """In the block, no other process writes this file. Without locks in the file system, several may write
    it, under other names."""
    lock = place.with_name(f"{place.name}.lock")
    with naming(lock):
        place.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _wait_for(opened, place)
        yield
    finally:
        with contextlib.suppress(OSError):  # harmless: the lock file is empty
            os.unlink(lock)
        os.close(opened)


def _wait_for(lock: int, place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info(f"{place}: another process creates it; waiting")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise disk_error(error, place) from error


def _remove_leftovers(place: Path, source: Path) -> None:
    """Remove incomplete files of killed processes, and tables of the same kind for previous content of the
    source."""
    of_kind, half_written = place.name.rpartition(".")[0] + ".", f".{short_name(place.name)}."
    for path in list(place.parent.iterdir()):
        if (
            path.name.startswith(half_written)
            and path.suffix == ".tmp"
            or (
                path.name.startswith(of_kind)
                and path.suffix != ".lock"
                and path != place
                and not _is_current(path, source)
            )
        ):
            path.unlink(missing_ok=True)


def _is_current(place: Path, source: Path) -> bool:
    with _opened(place) as (_, head):
        return head is not None and is_still(source, head["source"])


def _write(place: Path, tables: MappedTables, state: list) -> None:
    """Write the file; set its modification time to a whole second, which `_mapped` compares to the header."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tables.arrays.items()}
    checksum, listed, offset = 0, {}, 0
    for name, array in arrays.items():
        listed[name] = [array.dtype.str, list(array.shape), offset]
        padded = -array.nbytes % _ALIGNMENT
        checksum = zlib.crc32(bytes(padded), zlib.crc32(_bytes_of(array), checksum))
        offset += array.nbytes + padded
    written_s = int(time.time())
    head = {
        "order": sys.byteorder,
        "source": state,
        "values": tables.values,
        "arrays": listed,
        "bytes": offset,
        "checksum": checksum,
        "time": written_s,
    }
    with atomic_write(place, "wb") as f:
        content = json.dumps(head).encode()
        content += b" " * (-(_FIXED.size + len(content)) % _ALIGNMENT)
        f.write(_FIXED.pack(_MAGIC, _VERSION, len(content), zlib.crc32(content)) + content)
        for array in arrays.values():
            f.write(_bytes_of(array))
            f.write(bytes(-array.nbytes % _ALIGNMENT))
        f.flush()
        os.utime(f.fileno(), ns=(written_s * 10**9, written_s * 10**9))


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _mapped(place: Path, source: Path) -> MappedTables | None:
    """The tables in a file; None if it is missing, damaged, or not from the present content of the source."""
    with _opened(place) as (file, head):
        if file is None or head is None or not is_still(source, head["source"]):
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        changed_ns = os.fstat(file.fileno()).st_mtime_ns
    begin = len(data) - head["bytes"]
    if changed_ns != head["time"] * 10**9 and zlib.crc32(memoryview(data)[begin:]) != head["checksum"]:
        log.warning(f"{place}: damaged; it is created again")
        return None
    arrays = {
        name: np.frombuffer(data, np.dtype(kind), math.prod(shape), begin + offset).reshape(shape)
        for name, (kind, shape, offset) in head["arrays"].items()
    }
    return MappedTables(arrays, head["values"])


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[tuple[BinaryIO | None, dict | None]]:
    """(file, its header). Both are None if the file is missing or unreadable; the header is None if the file
    is truncated or of another version."""
    try:
        file = place.open("rb")
    except OSError:
        yield None, None  # harmless: the file is created again, or the tables are computed in memory
        return
    with file:
        yield file, _head_of(file)


def _head_of(file: BinaryIO) -> dict | None:
    fixed = file.read(_FIXED.size)
    if len(fixed) < _FIXED.size:
        return None
    magic, version, length, checksum = _FIXED.unpack(fixed)
    content = (
        file.read(length) if (magic, version) == (_MAGIC, _VERSION) and length <= _MAX_HEAD_BYTES else b""
    )
    if not content or zlib.crc32(content) != checksum:
        return None
    head = json.loads(content)
    whole = os.fstat(file.fileno()).st_size == _FIXED.size + length + head["bytes"]
    return head if whole and head["order"] == sys.byteorder else None
