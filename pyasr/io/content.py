"""The whole content of a user's file, plain or gzipped, in memory that its size accounts for.

A gzipped file may unpack to a thousand times its size; what is honest here stays far below: alignments and lattices shrink to a tenth.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pyasr.base.errors import UserError
from pyasr.base.output import disk_error

GZIP_MAGIC = b"\x1f\x8b"
GZIP_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
_ALWAYS_BYTES, _MOST_TIMES, _CHUNK_BYTES = 64 << 20, 100, 1 << 20


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Where `path` is opened and read: what keeps it from being read becomes a UserError that names it."""
    try:
        yield
    except OSError as error:
        told = disk_error(error, path)
        raise (told if isinstance(told, UserError) else UserError(f"{path}: {(error.strerror or str(error)).lower()}")) from None
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise UserError(f"{path}: no name of a file, there is a zero byte in it; correct the name") from None


def open_file(path: Path) -> BinaryIO:
    """The file, or pipe, opened. Raises UserError for one that cannot be read, and for devices, which may have no end."""
    with readable(path):
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UserError(f"{path}: a device, not a file; give a file")
        return open(path, "rb")


def read_file(path: Path) -> bytes:
    """The bytes of a file as they stand there."""
    with open_file(path) as file, readable(path):
        return file.read()


def read_content(path: Path) -> bytes:
    """The bytes of a file, unpacked where it is gzipped, whatever its name. Raises UserError when it cannot be read or unpacked."""
    data = read_file(path)
    if data[:2] != GZIP_MAGIC:
        return data
    chunks, size = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while chunk := file.read(_CHUNK_BYTES):
                size += len(chunk)
                check_unpacked(size, len(data), path)
                chunks.append(chunk)
    except GZIP_DAMAGE as error:
        raise UserError(f"{path}: damaged or truncated gzip file ({error}); make it anew") from None
    return b"".join(chunks)


def check_unpacked(num_bytes: int, num_packed: int, path: Path, most_times: int = _MOST_TIMES) -> None:
    """Raise UserError where a file of `num_packed` bytes has given more, `num_bytes`, than a file of speech tools can hold."""
    most = _ALWAYS_BYTES + most_times * num_packed
    if num_bytes > most:
        raise UserError(f"{path}: {num_packed} bytes that unpack to more than {most}; if that is meant, unpack it yourself")
