"""Read the content of a user's file, plain or compressed, with a limit on memory that depends on the size of
the file.

gzip, xz (with lzma, its earlier form) and bzip2 are recognised by the first bytes, not by the name of the
file. A malicious file may unpack to a thousand times its size; the ratio of real files is far lower:
alignments and lattices are compressed to a tenth.
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
    bz2 = lzma = None  # type: ignore[assignment]

HEAD_BYTES = 10  # enough to recognise a compression
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<xz>\xfd7zXZ\0|]\0\0.\0)|(?P<bzip2>BZh[1-9](1AY&SY|\x17rE8P\x90))", re.DOTALL
)
_UNREADABLE = {  # {first bytes: (program, command that unpacks the file)}
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
    b"\x1f\x9d": ("compress", "uncompress"),
    b"PK\3\4": ("zip", "unzip"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
}
_DAMAGE = (EOFError, zlib.error, OSError, *([lzma.LZMAError] if lzma else []))
_ALWAYS_BYTES, _MAX_EXPANSION, _CHUNK_BYTES = 64 << 20, 100, 1 << 20


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """For a block that opens and reads `path`: errors of the system become a UserError that names it."""
    try:
        with naming(path):
            yield
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise UserError(f"{path}: invalid file name, it contains a zero byte; correct the name") from None


def open_file(path: Path | str) -> io.BufferedReader:
    """Open a file or a pipe. Raises UserError if it cannot be read, and for devices, which may be endless."""
    with readable(path):
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UserError(f"{path}: a device, not a file; give a file")
        return open(path, "rb")


def read_file(path: Path | str) -> bytes:
    """The bytes of a file, not unpacked."""
    with readable(path), open_file(path) as file:
        return file.read()


def read_content(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is compressed, without a byte order mark at the beginning.

    Raises UserError if it cannot be read or unpacked, and for text in UTF-16 or UTF-32.
    """
    return without_mark(unpack(read_file(path), path), path)


def unpack(data: bytes, path: Path) -> bytes:
    """The unpacked bytes of a file; unchanged if they are not compressed."""
    packing = packing_of(data, path)
    if not packing:
        return data
    chunks, size = [], 0
    with naming_damage(packing, lambda what: UserError(f"{path}: {what}; obtain or create it again")):
        with unpacking(io.BytesIO(data), packing) as file:
            while chunk := file.read(_CHUNK_BYTES):
                size += len(chunk)
                check_unpacked(size, len(data), path)
                chunks.append(chunk)
    content = b"".join(chunks)
    _refuse_packed_twice(content, path)
    return content


class ContentReader:
    """Reads the bytes of `read_content` piece by piece from begin to end. For use in a `with` statement.

    Raises UserError as `read_content` does, at the read that reaches the damaged part of the file.
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
        """Upper bound of the number of bytes that can be read."""
        return _most_unpacked(self._num_packed) if self._packing else self._num_packed

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        with (
            readable(self.path),
            naming_damage(self._packing, lambda what: UserError(f"{self.path}: {what}; create it again")),
        ):
            piece = self._content.read(size)
        is_first, self._num_bytes = not self._num_bytes, self._num_bytes + len(piece)
        if self._packing:
            check_unpacked(self._num_bytes, self._num_packed, self.path)
        if is_first and self._packing:
            _refuse_packed_twice(piece, self.path)
        return without_mark(piece, self.path) if is_first else piece


def iterate_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or compressed, with their line breaks; only some lines are in memory at a
    time. Raises UserError as `ContentReader`."""
    rest = b""
    with ContentReader(path) as content:
        while piece := content.read(_CHUNK_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _refuse_packed_twice(content: bytes, path: Path) -> None:
    """Raise UserError if the unpacked `content` is again compressed."""
    if _MAGIC.match(content):
        raise UserError(f"{path}: compressed twice; unpack it once")


def packing_of(head: bytes, path: Path) -> str:
    """'gzip', 'xz' or 'bzip2' for a file that begins with `head` (at least HEAD_BYTES of it); '' if it is not
    compressed.

    Raises UserError for compressions that cannot be read.
    """
    for magic, (name, command) in _UNREADABLE.items():
        if head.startswith(magic) and not is_network(head):
            raise UserError(
                f"{path}: compressed by {name}, which is not supported; unpack it with '{command}', or use "
                "gzip, xz or bzip2"
            )
    found = _MAGIC.match(head)
    packing = found.lastgroup or "" if found else ""
    if packing in ("xz", "bzip2") and lzma is None:
        raise UserError(
            f"{path}: compressed by {packing}, which this build of Python does not support; unpack it"
        )
    return packing


def unpacking(file: BinaryIO, packing: str) -> BinaryIO | io.BufferedIOBase:
    """The unpacked content of an open file; the file itself if `packing` is ''."""
    if not packing:
        return file
    return (
        gzip.GzipFile(fileobj=file)
        if packing == "gzip"
        else (lzma.LZMAFile if packing == "xz" else bz2.BZ2File)(file)
    )


@contextlib.contextmanager
def naming_damage(packing: str, error_of: Callable[[str], UserError]) -> Iterator[None]:
    """In the block, damage of a compressed file raises `error_of(clause)`; system errors are not changed."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise error_of(f"damaged or truncated {packing} file ({error})") from None


def check_unpacked(
    num_bytes: int, num_packed: int, path: Path | str, max_expansion: int = _MAX_EXPANSION
) -> None:
    """Raise UserError if a file of `num_packed` bytes has unpacked to `num_bytes`, more than plausible for
    files of speech tools."""
    most = _most_unpacked(num_packed, max_expansion)
    if num_bytes > most:
        raise UserError(
            f"{path}: {num_packed} bytes that unpack to more than {most}; if this is intended, unpack it "
            "first"
        )


def _most_unpacked(num_packed: int, max_expansion: int = _MAX_EXPANSION) -> int:
    return _ALWAYS_BYTES + max_expansion * num_packed
