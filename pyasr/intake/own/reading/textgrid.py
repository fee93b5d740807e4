"""Praat's TextGrid files, in the long and the short text form.

Both forms contain the same values in the same order. Praat reads only free-standing strings in quotation
marks, numbers and flags, and ignores names, equal signs and numbers in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.text_files import text_in
from pyasr.io.content import HEAD_BYTES, open_file

_VALUE = re.compile(r'"(?P<string>(?:[^"]|"")*)"|![^\n]*|(?P<word>[^\s"]+)')
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_CLASSES = {"IntervalTier": 3, "TextTier": 2}  # number of values of an item


@dataclass(frozen=True)
class Interval:
    """The label from `begin_s` to `end_s`."""

    begin_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Tier:
    """An interval tier: its name, and its intervals in order."""

    name: str
    intervals: tuple[Interval, ...]


def read_textgrid(path: Path) -> list[Tier]:
    """The interval tiers of a file; point tiers are skipped. Raises UserError for a file that is not a
    TextGrid, or is truncated."""
    with open_file(path) as file:
        if file.read(HEAD_BYTES).startswith(b"ooBinary"):
            raise UserError(f"{path}: a TextGrid in Praat's binary form; save it as a text file in Praat")
    values = _values(text_in(path))
    try:
        return _tiers(_ValueReader(values))
    except (IndexError, TypeError, ValueError) as error:
        message = (
            "cut short"
            if isinstance(error, IndexError)
            else f"not in Praat's long or short text form ({error})"
        )
        raise UserError(f"{path}: {message}; save it again as a text file in Praat") from None


def _values(text: str) -> list[str | float]:
    """Strings and numbers in order; a flag becomes a number, which is 1 where something exists."""
    found: list[str | float] = []
    for match in _VALUE.finditer(text):
        word = match["word"]
        if match["string"] is not None:
            found.append(match["string"].replace('""', '"'))
        elif word and _NUMBER.fullmatch(word):
            found.append(float(word))
        elif word in ("<exists>", "<absent>"):
            found.append(float(word == "<exists>"))
    return found


class _ValueReader:
    """Iterator over values. Raises IndexError after the last value, and TypeError if the next
    value has another type than requested."""

    def __init__(self, values: list[str | float]):
        self._values, self._at = values, 0

    def take(self, kind: type):
        value = self._values[self._at]
        self._at += 1
        if not isinstance(value, kind):
            raise TypeError(f"'{value}' instead of {'a text' if kind is str else 'a number'}")
        return value


def _tiers(values: _ValueReader) -> list[Tier]:
    """The tiers in these values. Raises an error of `_ValueReader`, or ValueError if they are no TextGrid."""
    head = values.take(str), values.take(str)
    if not head[0].startswith("ooTextFile") or head[1] != "TextGrid":
        raise ValueError(f"it begins with '{head[0][:20]}' and '{head[1][:20]}'")
    values.take(float), values.take(float)
    num_tiers = int(values.take(float)) if values.take(float) else 0
    return [tier for tier in (_tier(values) for _ in range(num_tiers)) if tier]


def _tier(values: _ValueReader) -> Tier | None:
    kind = values.take(str)
    if kind not in _CLASSES:
        raise ValueError(f"a tier of the class '{kind[:20]}'")
    name = values.take(str)
    values.take(float), values.take(float)
    items = [
        [values.take(float) for _ in range(_CLASSES[kind] - 1)] + [values.take(str)]
        for _ in range(int(values.take(float)))
    ]
    return Tier(name, tuple(Interval(*item) for item in items)) if kind == "IntervalTier" else None
