"""Compare our word error rates with those published for a recipe's systems.

The file of published WERs has lines of three fields separated by tabs, `DECODING WER SOURCE`: the decode
directory relative to the experiment's, such as `tri4b/decode_test_clean`, the WER in per cent, and the
publication. After a blank, DECODING may name a subset of the set's stm: `dnn/decode_eval2000 swbd`. Lines
that begin with # are comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines
from pyasr.report.text_table import markdown_table
from pyasr.score.score_dir import chosen_wer

_HEAD = ["decoding", "published WER %", "our WER %", "difference", "source"]
_NOTE = "* Our LM weight and penalty are those of the first table; '-': not decoded, or not scored."


class PublishedWer(NamedTuple):
    """A WER in per cent of a decode directory relative to the experiment's, optionally with a subset."""

    decoding: str
    wer: float
    source: str


def read_published(path: Path) -> list[PublishedWer]:
    """The lines of such a file. Raises UserError with file and line for an invalid line, and for a repeated
    decoding."""
    found: dict[str, PublishedWer] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        try:
            row = PublishedWer(fields[0], float(fields[1]), fields[2])
        except (IndexError, ValueError):
            raise UserError(
                f"{path}:{number}: '{line}' is not 'DECODING WER SOURCE', separated by tabs; correct the line"
            ) from None
        if found.setdefault(row.decoding, row) is not row:
            raise UserError(f"{path}:{number}: '{row.decoding}' occurs twice; keep one of the two lines")
    return list(found.values())


def published_table(exp: Path, published: list[PublishedWer]) -> str:
    """A section of the results page: a row for each published WER, with our WER if the decode directory below
    `exp` was scored."""
    rows = [[row.decoding, f"{row.wer:.2f}", *_ours(Path(exp), row), row.source] for row in published]
    return f"\n## Comparison with published results\n\n{markdown_table(_HEAD, rows)}\n\n{_NOTE}"


def _ours(exp: Path, published: PublishedWer) -> tuple[str, str]:
    """Our WER and its difference from the published one."""
    decoding, _, subset = published.decoding.partition(" ")
    wer = chosen_wer(exp / decoding, subset)
    return ("-", "-") if wer is None else (f"{wer:.2f}", f"{wer - published.wer:+.2f}")
