"""The words of a recogniser's ctm that are scored against an stm, as in Kaldi's recipes for Switchboard.

Noises, hesitations and fragments are removed, because references mark them as optional. Acronyms are split into letters,
which share the time of the word: `i._b._m.` becomes i b m, `t._v.'s` becomes t v's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyasr.data.ctm import CtmLine

DROPPED = "noises,hesitations,fragments"
_HESITATIONS = "uh|um|eh|mm|hm|ah|huh|ha|er|oof|hee|ach|eee|ew"
_UNSCORED = re.compile(rf"\[(?:noise|laughter|vocalized-noise)\]|<unk>|.*-|{_HESITATIONS}", re.IGNORECASE)
_ACRONYM = re.compile(r"((?:[a-z]\._)*[a-z]\.)('?s)?", re.IGNORECASE)
_DECIMALS = 2  # of the times in a ctm


def scored_lines(lines: Iterable[CtmLine]) -> list[CtmLine]:
    """The scored words of a ctm, with acronyms as letters."""
    return [spelled for line in lines if not _UNSCORED.fullmatch(line.word) for spelled in _spelled(line)]


def _spelled(line: CtmLine) -> Iterator[CtmLine]:
    acronym = _ACRONYM.fullmatch(line.word)
    if not acronym:
        yield line
        return
    letters = acronym[1].rstrip(".").split("._")
    letters[-1] += acronym[2] or ""
    each = line.duration_s / len(letters)
    for i, letter in enumerate(letters):
        begin_s = round(line.begin_s + i * each, _DECIMALS)
        yield replace(line, begin_s=begin_s, duration_s=round(each, _DECIMALS), word=letter)
