"""Read text files of corpora: UTF-8, or Latin-1 on older discs."""

from __future__ import annotations

from pathlib import Path

from pyasr.base import log
from pyasr.base.utf8 import without_mark
from pyasr.io.content import read_content


def lines_of(content: bytes, name: object) -> list[str]:
    """The lines of a text file without carriage returns. Text that is not UTF-8 is read as Latin-1; this is
    logged with `name`."""
    content = without_mark(content, Path(str(name)))
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        log.warning(f"{name}:{line}: not UTF-8; the file is read as Latin-1")
        text = content.decode("latin-1")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_lines(path: Path) -> list[str]:
    """`lines_of` a file, plain or compressed. Raises UserError for a file that cannot be read."""
    return lines_of(read_content(path), path)
