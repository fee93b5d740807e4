"""The whole content of a user's file, plain or compressed, in memory that its size accounts for.

gzip, xz (with lzma, its earlier form) and bzip2 are recognized by the first bytes, not by the file's name. A compressed file may unpack
to a thousand times its size; honest files stay far below: alignments and lattices shrink to a tenth.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pyasr.base.errors import UserError
from pyasr.base.system_errors import naming
from pyasr.base.utf8 import without_mark
from pyasr.io.object_kinds import is_network

try:
    import bz2
    import lzma
except ImportError:  # Python can be built without these libraries
    bz2 = lzma = None

HEAD_BYTES = 10  # enough to recognize a compression
_MAGIC = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<xz>\xfd7zXZ\0|]\0\0.\0)|(?P<bzip2>BZh[1-9](1AY&SY|\x17rE8P\x90))", re.DOTALL)
_UNREADABLE = {  # first bytes: the program, the command that unpacks the file
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
    b"\x1f\x9d": ("compress", "uncompress"),
    b"PK\3\4": ("zip", "unzip"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
}
_DAMAGE = (EOFError, zlib.error, OSError, *([lzma.LZMAError] if lzma else []))
_ALWAYS_BYTES, _MOST_TIMES, _CHUNK_BYTES = 64 << 20, 100, 1 << 20


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Where `path` is opened and read: what keeps it from being read becomes a UserError that names it."""
    try:
        with naming(path):
            yield
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
    with readable(path), open_file(path) as file:
        return file.read()


def read_content(path: Path) -> bytes:
    """The bytes of a file, unpacked where it is compressed, without a byte order mark at the beginning.

    Raises UserError when it cannot be read or unpacked, and for text in UTF-16 or UTF-32.
    """
    return without_mark(unpack(read_file(path), path), path)


def unpack(data: bytes, path: Path) -> bytes:
    """The unpacked bytes of a file; unchanged if they are not compressed."""
    packing = packing_of(data, path)
    if not packing:
        return data
    chunks, size = [], 0
    with telling_damage(packing, lambda what: UserError(f"{path}: {what}; get it or make it again")):
        with unpacking(io.BytesIO(data), packing) as file:
            while chunk := file.read(_CHUNK_BYTES):
                size += len(chunk)
                check_unpacked(size, len(data), path)
                chunks.append(chunk)
    content = b"".join(chunks)
    _refuse_packed_twice(content, path)
    return content


class ContentReader:
    """The content of a file from its begin to its end, piece by piece: the bytes that `read_content` gives. For use in a `with` statement.

    Raises UserError as that does, where the place in the file is reached.
    """

    def __init__(self, path: Path):
        self.path, self._file, self._num_bytes = path, open_file(path), 0
        with readable(path):
            self._packing = packing_of(self._file.peek(HEAD_BYTES)[:HEAD_BYTES], path)
            found = os.fstat(self._file.fileno())
        self._content = unpacking(self._file, self._packing)
        self._num_packed = found.st_size if stat.S_ISREG(found.st_mode) else sys.maxsize

    def __enter__(self) -> ContentReader:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    @property
    def most_bytes(self) -> int:
        """No more than so many can come."""
        return _most_unpacked(self._num_packed) if self._packing else self._num_packed

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        with readable(self.path), telling_damage(self._packing, lambda what: UserError(f"{self.path}: {what}; make it anew")):
            piece = self._content.read(size)
        is_first, self._num_bytes = not self._num_bytes, self._num_bytes + len(piece)
        if self._packing:
            check_unpacked(self._num_bytes, self._num_packed, self.path)
        if is_first and self._packing:
            _refuse_packed_twice(piece, self.path)
        return without_mark(piece, self.path) if is_first else piece


def iterate_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or compressed, with their line breaks, some of them in memory at a time. Raises UserError as
    `ContentReader`."""
    rest = b""
    with ContentReader(path) as content:
        while piece := content.read(_CHUNK_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _refuse_packed_twice(content: bytes, path: Path) -> None:
    """Raise UserError for unpacked content that is compressed."""
    if _MAGIC.match(content):
        raise UserError(f"{path}: compressed twice; unpack it once")


def packing_of(head: bytes, path: Path) -> str:
    """'gzip', 'xz' or 'bzip2' for a file that begins with `head` (at least HEAD_BYTES of it), '' where it is not compressed.

    Raises UserError for compressions that cannot be read.
    """
    for magic, (name, command) in _UNREADABLE.items():
        if head.startswith(magic) and not is_network(head):
            raise UserError(f"{path}: compressed by {name}, which is not read here; unpack it with '{command}', or use gzip, xz or bzip2")
    found = _MAGIC.match(head)
    packing = found.lastgroup if found else ""
    if packing in ("xz", "bzip2") and lzma is None:
        raise UserError(f"{path}: compressed by {packing}, which this Python was built without; unpack it")
    return packing


def unpacking(file: BinaryIO, packing: str) -> BinaryIO:
    """The unpacked content of an open file, itself where `packing` is ''."""
    if not packing:
        return file
    return gzip.GzipFile(fileobj=file) if packing == "gzip" else (lzma.LZMAFile if packing == "xz" else bz2.BZ2File)(file)


@contextlib.contextmanager
def telling_damage(packing: str, error_of: Callable[[str], UserError]) -> Iterator[None]:
    """In the block, damage of a compressed file raises `error_of(clause)`; errors of the system stay."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise error_of(f"damaged or truncated {packing} file ({error})") from None


def check_unpacked(num_bytes: int, num_packed: int, path: Path, most_times: int = _MOST_TIMES) -> None:
    """Raise UserError where a file of `num_packed` bytes has given more, `num_bytes`, than a file of speech tools can hold."""
    most = _most_unpacked(num_packed, most_times)
    if num_bytes > most:
        raise UserError(f"{path}: {num_packed} bytes that unpack to more than {most}; if that is meant, unpack it yourself")


def _most_unpacked(num_packed: int, most_times: int = _MOST_TIMES) -> int:
    return _ALWAYS_BYTES + most_times * num_packed
