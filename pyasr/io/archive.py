"""What Kaldi's archives have in common: entries of a key, a space and an object, in a file that may be gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Container
from pathlib import Path

from pyasr.base.errors import UserError

_GZIP_MAGIC = b"\x1f\x8b"


def read_content(path: Path) -> bytes:
    """The whole file, unpacked where it is gzipped, whatever its name. Raises UserError when it cannot be read or unpacked."""
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data[:2] == _GZIP_MAGIC else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged or truncated gzip file ({error}); make it anew") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def write_content(file, path: Path, content: bytes) -> None:
    """Write to an open binary file, gzipped when the name `path` ends in `.gz`."""
    if Path(path).suffix != ".gz":
        file.write(content)
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0) as f:
        f.write(content)


def damaged(path: Path, position: int, kind: str, what: str) -> UserError:
    """A UserError, to be raised, about an archive of `kind` (say "integer vectors")."""
    return UserError(f"{path}: not an archive of {kind}: {what} at byte {position}; make the file anew")


def read_key(content: bytes, position: int, path: Path, kind: str, known: Container[str] = ()) -> str:
    """The key that begins at `position`, up to a space. Raises UserError where there is none, or for one of `known`."""
    space, newline = content.find(b" ", position), content.find(b"\n", position)
    key = b"" if space < 0 or 0 <= newline < space else content[position:space]
    if space == len(content) - 1:
        raise damaged(path, space, kind, "the file ends after a key; it is truncated")
    try:
        word = key.decode()
    except UnicodeDecodeError:
        word = ""
    if not word or not word.isprintable():
        raise damaged(path, position, kind, "a key with a space after it was expected")
    if word in known:
        raise UserError(f"{path}: the key {word} occurs twice; remove one of its entries")
    return word
