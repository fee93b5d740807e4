"""The generated part of a page: lines between two marks."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write


def replace_between(path: Path, begin: str, end: str, text: str) -> None:
    """Write `text` between two marks of a page, with an empty line before and after it. Raises UserError if a
    mark is missing."""
    before, found, rest = Path(path).read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise UserError(
            f"{path}: the marks of the generated part are missing; add the lines '{begin}' and '{end}'"
        )
    with atomic_write(path) as f:
        f.write(f"{before}{begin}\n\n{text}\n\n{end}{after}")
