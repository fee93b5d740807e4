"""Tables made from a large file, kept in one file beside it that all jobs and threads of a host map: its pages are in memory once.

    tables = derived(Path("exp/tri1/graph/HCLG.fst"), "search", key, lambda: Tables({"finals": finals}, {"start": 0}))

The file is DIRECTORY/.NAME.KIND.KEY, hidden, so that it is no part of an output. DIRECTORY is that of the source, or what PYASR_MAPPED
names; then a digest of the source's place is in the name. It holds a head of JSON, with the size, time and digest of the source, and the
arrays, each at a multiple of 64 bytes. It is written beside and renamed, so a process that has mapped an earlier file keeps reading that
one. Of processes that want the same tables one makes them, and the others wait for it (flock(2)). Where no file can be written (a
read-only directory, a full disk), each process has the tables in its own memory.

A file is trusted where its own time is the one in its head. One with another time, a copy or a damaged file, is compared with its checksum.
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
LEAST_BYTES = 4 << 20  # of a source; a smaller one is read as quickly as its tables are found
_MAGIC, _VERSION, _ALIGNMENT = b"PYASRMAP", 1, 64
_FIXED = struct.Struct("<8sIII")  # magic, version, bytes of the head's JSON, their CRC-32
_MOST_HEAD_BYTES = 1 << 20
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


@dataclass(frozen=True)
class Tables:
    """Arrays by their names, not writable, and plain values that JSON can hold."""

    arrays: dict[str, np.ndarray]
    values: dict = field(default_factory=dict)

    def __post_init__(self):
        for array in self.arrays.values():
            array.flags.writeable = False


def derived(source: Path, kind: str, key: str, make: Callable[[], Tables], more: Sequence[Path] = ()) -> Tables:
    """What `make` gives for the content of the file `source`, mapped from a file that is made if it is missing or out of date.

    kind  what the tables are, a part of the file's name
    key   digest of all else that they depend on, the format's version included
    more  directories for the file where that of the source cannot be written

    Sources of less than LEAST_BYTES are left to `make`. Raises what `make` raises, and UserError where there is no such source.
    """
    with naming(source):
        num_bytes = source.stat().st_size
    if num_bytes < LEAST_BYTES:
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
    log.warning(f"{source}: its tables cannot be kept, so each job has its own copy in memory; name a directory by {VARIABLE} "
                f"({maker.refusals[0]})")
    return maker.tables()


def digest_of_parts(*parts: bytes | str) -> str:
    """A short digest of what tables depend on, for `key`."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part.encode() if isinstance(part, str) else bytes(part)) + b"\0")
    return digest.hexdigest()[:8]


class _Maker:
    """Makes the tables of a source, at most once.

    refusals    why files could not be written
    has_failed  whether the tables themselves could not be made
    """

    def __init__(self, source: Path, make: Callable[[], Tables]):
        self._source, self._make, self._made = source, make, None
        self._state, self.has_failed = None, False
        self.refusals: list[str] = []

    def tables(self) -> Tables:
        """In memory."""
        if self._made is None:
            self.has_failed = True
            self._state = file_state(self._source)
            self._made = self._make()
            self.has_failed = False
        return self._made

    def kept_at(self, place: Path) -> Tables:
        """Mapped from the file `place`, which is written unless another process has written it meanwhile. Raises SystemRefusal where it
        cannot be; returns the tables in memory where the source has changed while it was read."""
        with _alone(place):
            if found := _mapped(place, self._source):
                return found
            with contextlib.suppress(OSError):  # harmless: they only take room
                _remove_leftovers(place, self._source)
            made = self.tables()
            if not is_still(self._source, self._state):
                return made
            _write(place, made, self._state)
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
    """While no other process makes this file. Where the file system has no locks, several may make it, each its own."""
    lock = place.with_name(f"{place.name}.lock")
    with naming(lock):
        place.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _wait_for(opened, place)
        yield
    finally:
        with contextlib.suppress(OSError):  # harmless: it is empty
            os.unlink(lock)
        os.close(opened)


def _wait_for(lock: int, place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info(f"{place}: another process makes it; waiting")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise disk_error(error, place) from error


def _remove_leftovers(place: Path, source: Path) -> None:
    """Remove what killed processes have left of this file, and tables of the same kind for an earlier content of the source."""
    of_kind, half_written = place.name.rpartition(".")[0] + ".", f".{short_name(place.name)}."
    for path in list(place.parent.iterdir()):
        if path.name.startswith(half_written) and path.suffix == ".tmp":
            path.unlink(missing_ok=True)
        elif path.name.startswith(of_kind) and path.suffix != ".lock" and path != place and not _is_current(path, source):
            path.unlink(missing_ok=True)


def _is_current(place: Path, source: Path) -> bool:
    with _opened(place) as (_, head):
        return head is not None and is_still(source, head["source"])


def _write(place: Path, tables: Tables, state: list) -> None:
    """Write the file, whose time of change is then a whole second, by which `_mapped` knows it again."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tables.arrays.items()}
    checksum, listed, offset = 0, {}, 0
    for name, array in arrays.items():
        listed[name] = [array.dtype.str, list(array.shape), offset]
        padded = -array.nbytes % _ALIGNMENT
        checksum = zlib.crc32(bytes(padded), zlib.crc32(_bytes_of(array), checksum))
        offset += array.nbytes + padded
    head = {"order": sys.byteorder, "source": state, "values": tables.values, "arrays": listed, "bytes": offset, "checksum": checksum,
            "time": int(time.time())}  # fmt: skip
    with atomic_write(place, "wb") as f:
        content = json.dumps(head).encode()
        content += b" " * (-(_FIXED.size + len(content)) % _ALIGNMENT)
        f.write(_FIXED.pack(_MAGIC, _VERSION, len(content), zlib.crc32(content)) + content)
        for array in arrays.values():
            f.write(_bytes_of(array))
            f.write(bytes(-array.nbytes % _ALIGNMENT))
        f.flush()
        os.utime(f.fileno(), ns=(head["time"] * 10**9,) * 2)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


def _mapped(place: Path, source: Path) -> Tables | None:
    """The tables in a file; None where there is none, or it is damaged, or not of the present content of the source."""
    with _opened(place) as (file, head):
        if head is None or not is_still(source, head["source"]):
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        changed_ns = os.fstat(file.fileno()).st_mtime_ns
    begin = len(data) - head["bytes"]
    if changed_ns != head["time"] * 10**9 and zlib.crc32(memoryview(data)[begin:]) != head["checksum"]:
        log.warning(f"{place}: damaged; it is made again")
        return None
    arrays = {name: np.frombuffer(data, np.dtype(kind), math.prod(shape), begin + offset).reshape(shape)
              for name, (kind, shape, offset) in head["arrays"].items()}  # fmt: skip
    return Tables(arrays, head["values"])


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[tuple[BinaryIO | None, dict | None]]:
    """(file, its head); (None, None) where there is no such file, or it cannot be read, or is cut short or of another version."""
    try:
        file = place.open("rb")
    except OSError:
        yield None, None  # harmless: it is made again, or the tables are made in memory
        return
    with file:
        yield file, _head_of(file)


def _head_of(file: BinaryIO) -> dict | None:
    fixed = file.read(_FIXED.size)
    if len(fixed) < _FIXED.size:
        return None
    magic, version, length, checksum = _FIXED.unpack(fixed)
    content = file.read(length) if (magic, version) == (_MAGIC, _VERSION) and length <= _MOST_HEAD_BYTES else b""
    if not content or zlib.crc32(content) != checksum:
        return None
    head = json.loads(content)
    whole = os.fstat(file.fileno()).st_size == _FIXED.size + length + head["bytes"]
    return head if whole and head["order"] == sys.byteorder else None
