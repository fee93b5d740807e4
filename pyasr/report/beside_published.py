"""Word error rates that were published for a recipe's systems, beside ours.

A file of them has lines of three fields between tabs, `DECODING WER SOURCE`: the decode directory below the experiment's, as
`tri4b/decode_test_clean`, the WER in per cent, and where it was published. After a blank, DECODING may name a subset of the set's stm,
`dnn/decode_eval2000 swbd`. Lines that begin with # are comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyasr.base.errors import UserError
from pyasr.io.text import read_lines
from pyasr.report.text_table import markdown_table
from pyasr.score.decode_dir import chosen_wer

_HEAD = ["decoding", "published WER %", "our WER %", "difference", "source"]
_NOTE = "* Our LM weight and penalty are those of the first table; '-': not decoded, or not scored."


class PublishedWer(NamedTuple):
    """A WER in per cent of a decode directory, named below the experiment's, perhaps with a subset."""

    decoding: str
    wer: float
    source: str


def read_published(path: Path) -> list[PublishedWer]:
    """The lines of such a file. Raises UserError with file and line for any other line, and a decoding that stands there twice."""
    found: dict[str, PublishedWer] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        try:
            row = PublishedWer(fields[0], float(fields[1]), fields[2])
        except (IndexError, ValueError):
            raise UserError(f"{path}:{number}: '{line}' is not 'DECODING WER SOURCE' with tabs between them; correct the line") from None
        if found.setdefault(row.decoding, row) is not row:
            raise UserError(f"{path}:{number}: '{row.decoding}' stands there a second time; keep one of the two lines")
    return list(found.values())


def published_table(exp: Path, published: list[PublishedWer]) -> str:
    """A section of the page of results: a row for each published WER, with that of the decode directory below `exp` where it was scored."""
    rows = [[row.decoding, f"{row.wer:.2f}", *_ours(Path(exp), row), row.source] for row in published]
    return f"\n## Beside published results\n\n{markdown_table(_HEAD, rows)}\n\n{_NOTE}"


def _ours(exp: Path, published: PublishedWer) -> tuple[str, str]:
    """Our WER and its difference from a published one."""
    decoding, _, subset = published.decoding.partition(" ")
    wer = chosen_wer(exp / decoding, subset)
    return ("-", "-") if wer is None else (f"{wer:.2f}", f"{wer - published.wer:+.2f}")
