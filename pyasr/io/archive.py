"""Common parts of Kaldi's archive formats: entries of a key, a space and an object, in a file that may be
gzipped."""

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
    """Write to an open binary file, gzipped if the name `path` ends in `.gz`."""
    if Path(path).suffix != ".gz":
        file.write(content)
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0) as f:
        f.write(content)


def damaged(path: Path, position: int, kind: str, what: str) -> UserError:
    """UserError about a damaged archive of `kind` (such as "integer vectors"), to be raised by the caller."""
    return UserError(f"{path}: not an archive of {kind}: {what} at byte {position}; create the file again")


def read_key(content: bytes, position: int, path: Path, kind: str, known: Container[str] = ()) -> str:
    """The key that begins at `position`, up to a space, or a tab, which scripts write. Raises UserError if no
    key begins there, and for a key of `known`."""
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
        raise damaged(path, position, kind, "expected a key followed by a space")
    if word in known:
        raise UserError(f"{path}: the key {word} occurs twice; remove one of its entries")
    return word


def _is_word(text: str) -> bool:
    """Whether the text has neither white space nor control characters; invisible characters such as the
    joiners of some scripts are allowed."""
    return text.isprintable() or not any(
        char.isspace() or unicodedata.category(char) == "Cc" for char in text
    )
