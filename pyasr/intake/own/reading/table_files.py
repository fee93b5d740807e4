"""Read tables written by people and programs: TSV, CSV, or fields separated by bars, with or without
quotation marks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.text_files import text_in

SUFFIXES = frozenset((".tsv", ".csv", ".txt", ".psv", ".tab", ".lst", ".list"))
_DELIMITERS = "\t|;,"  # the first that fits is used
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NUM_LOOKED_AT = 50
_MAX_FIELD = 1 << 20


@dataclass(frozen=True)
class Row:
    """The fields of a line."""

    line: int
    fields: list[str]


def read_rows(path: Path) -> list[Row]:
    """The rows of a table, each with the same number of fields as the first; empty lines are skipped.

    If no delimiter fits, a line has two fields: the word before the first blank, and the rest. Raises
    UserError with file and line for another number of fields and for an unclosed quotation mark.
    """
    text = text_in(path)
    delimiter = delimiter_of(text)
    rows = [row for row in _split(path, text, delimiter) if any(row.fields)]
    if not rows:
        raise UserError(f"{path}: no rows; expected a line per utterance")
    advice = (
        f"correct the line, or put fields that contain '{delimiter}' in quotation marks"
        if delimiter in ",;"
        else "correct the line"
    )
    return [Row(row.line, _fitting(row, rows[0], path, advice)) for row in rows]


def delimiter_of(text: str) -> str:
    """The character that separates the fields of all of the first lines; a blank if there is none.

    Quotation marks count as text first. If no delimiter fits, they are read as quotes around fields, which
    may then contain line breaks.
    """
    return _in_all_lines(text) or _in_all_lines(_QUOTED.sub("", text)) or " "


def _in_all_lines(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()][:_NUM_LOOKED_AT]
    return next(
        (delimiter for delimiter in _DELIMITERS if lines and all(delimiter in line for line in lines)), ""
    )


def _split(path: Path, text: str, delimiter: str) -> Iterator[Row]:
    if delimiter in ",;":
        yield from _by_csv(path, text, delimiter)
        return
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split(maxsplit=1) if delimiter == " " else line.split(delimiter)
        yield Row(number, [_unquoted(field.strip()) for field in fields])


def _by_csv(path: Path, text: str, delimiter: str) -> Iterator[Row]:
    """Fields in quotation marks may contain the delimiter and line breaks (RFC 4180)."""
    csv.field_size_limit(_MAX_FIELD)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    begin = 1
    try:
        for fields in reader:
            yield Row(begin, [" ".join(field.split()) for field in fields])
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{begin}: {error}; put a field with quotation marks in quotation marks, and double "
            "those in it"
        ) from None


def _unquoted(field: str) -> str:
    """A field without the quotation marks around it, if those within it are doubled; other marks are part of
    the text."""
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else field


def _fitting(row: Row, first: Row, path: Path, advice: str) -> list[str]:
    """The fields of a row, without empty surplus fields. Raises UserError if their number differs from that
    of `first`."""
    fields, num = row.fields, len(first.fields)
    while len(fields) > num and not fields[-1]:
        fields = fields[:-1]
    if len(fields) != num:
        shown = ", ".join(field[:20] for field in first.fields)
        raise UserError(
            f"{path}:{row.line}: {len(fields)} column(s), but {num} in line {first.line} ({shown}); {advice}"
        )
    return fields
