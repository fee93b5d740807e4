"""What Kaldi's archives have in common: entries of a key, a space and an object, in a file that may be gzipped."""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections.abc import Container
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.object_kinds import refuse_keyless

_END_OF_KEY = re.compile(rb"[ \t\n]")


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
    """The key that begins at `position`, up to a space, or a tab, as scripts write it. Raises UserError where there is none, or for one of
    `known`."""
    if not position:
        refuse_keyless(path, content, kind)
    end = _END_OF_KEY.search(content, position)
    space = end.start() if end and end[0] != b"\n" else -1
    key = b"" if space < 0 else content[position:space]
    if space == len(content) - 1:
        raise damaged(path, space, kind, "the file ends after a key; it is truncated")
    try:
        word = key.decode()
    except UnicodeDecodeError:
        word = ""
    if not word or not _is_word(word):
        raise damaged(path, position, kind, "a key with a space after it was expected")
    if word in known:
        raise UserError(f"{path}: the key {word} occurs twice; remove one of its entries")
    return word


def _is_word(text: str) -> bool:
    """Whether all are characters of a word: neither white space nor control characters, but joiners, which some scripts need, and others
    that are not seen."""
    return text.isprintable() or not any(char.isspace() or unicodedata.category(char) == "Cc" for char in text)
