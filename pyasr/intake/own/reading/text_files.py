"""Read text files: UTF-8, or UTF-16 with a byte order mark, with line ends of any kind."""

from __future__ import annotations

import codecs
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.content import read_file, unpack

_MARKS = (
    (codecs.BOM_UTF32_LE, ""),
    (codecs.BOM_UTF32_BE, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_in(path: Path) -> str:
    """The text of a file, plain or compressed, without a byte order mark, with '\\n' as line end. Raises
    UserError for other encodings."""
    content = unpack(read_file(path), path)
    mark, encoding = next(
        ((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8-sig")
    )
    try:
        text = content[len(mark) :].decode(encoding or "utf-32")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: not UTF-8 text; convert the file, for example with iconv -f latin1 -t utf-8"
        ) from None
    if "\0" in text:
        raise UserError(f"{path}: it contains zero bytes, so it is not text; give a text file in UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")
