"""UTF-8 text, independent of the locale."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

from pyasr.base.errors import UserError

_OTHER_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def without_mark(content: bytes, path: Path) -> bytes:
    """The bytes of a file without the byte order mark U+FEFF, which some editors write at the beginning.

    path  the file's name in messages

    Raises UserError for the byte order marks of UTF-16 and UTF-32.
    """
    for mark, encoding in _OTHER_MARKS:
        if content.startswith(mark):
            name = encoding.lower()
            raise UserError(
                f"{path}: {encoding} text, not UTF-8; convert the file with iconv -f {name} -t utf-8"
            )
    while content.startswith(codecs.BOM_UTF8):
        content = content[len(codecs.BOM_UTF8) :]
    return content


def text_of(content: bytes, path: Path, first_line: int = 1) -> str:
    """Decode the bytes of a file as UTF-8, without a byte order mark. Raises UserError with the line that is
    not UTF-8.

    first_line  number of the first line of `content`
    """
    content = without_mark(content, path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + first_line
        raise UserError(f"{path}:{line}: not UTF-8 text; convert the file with iconv -t utf-8") from None


def require_utf8() -> None:
    """Restart this program in Python's UTF-8 mode, unless arguments, file names and output are already UTF-8,
    as after path.sh."""
    if sys.getfilesystemencoding().lower() == "utf-8":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def as_utf8(name: str) -> str:
    """The name of a file for text output: bytes that are not UTF-8 are shown as \\xff."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
