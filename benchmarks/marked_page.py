"""The part of a page that a program writes: lines between two marks."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write


def replace_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put `text` between two marks of a page, with an empty line before and after it. Raises UserError where
    a mark is not there."""
    before, found, rest = Path(path).read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise UserError(
            f"{path}: the figures have no place; put '{begin}' and '{end}' where they are to be, on lines of their own"
        )
    with atomic_write(path) as f:
        f.write(f"{before}{begin}\n\n{text}\n\n{end}{after}")
