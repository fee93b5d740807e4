"""The words of a recogniser's ctm that are scored against an stm, as in Kaldi's recipes for Switchboard.

Noises, hesitations and fragments are removed, because references mark them as optional. Acronyms are split
into letters, which share the time of the word (`pyasr.data.transcripts.spoken`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyasr.data.transcripts.ctm import CtmLine
from pyasr.data.transcripts.spoken import is_optional, is_unscored, letters_of

DROPPED = "noises,hesitations,fragments"
_DECIMALS = 2  # of the times in a ctm


def scored_lines(lines: Iterable[CtmLine]) -> list[CtmLine]:
    """The scored words of a ctm, with acronyms as letters."""
    return [
        spelled
        for line in lines
        if not is_unscored(line.word) and not is_optional(line.word)
        for spelled in _spelled(line)
    ]


def _spelled(line: CtmLine) -> Iterator[CtmLine]:
    letters = letters_of(line.word)
    if letters == [line.word]:
        yield line
        return
    each = line.duration_s / len(letters)
    for i, letter in enumerate(letters):
        begin_s = round(line.begin_s + i * each, _DECIMALS)
        yield replace(line, begin_s=begin_s, duration_s=round(each, _DECIMALS), word=letter)
