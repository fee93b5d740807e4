"""Acronyms that are spoken letter by letter. Each is one word of the lexicon and the transcripts, `IBM` as
`i._b._m.`, and is scored as letters (`pyasr.data.transcripts.spoken`).

    IBM  i._b._m.       i b m
    TVs  t._v.s         t v's
    BBC's b._b._c.'s    b b c's
    C    c.             c
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

from pyasr.lang.lexicons.lexicon import Lexicon, Phones

_NAMES = (
    "ey/b iy/s iy/d iy/iy/eh f/jh iy/ey ch/ay/jh ey/k ey/eh l/eh m/eh n/"
    "ow/p iy/k y uw/aa r/eh s/t iy/y uw/v iy/d ah b ax l y uw/eh k s/w ay/z iy"
)
LETTER_NAMES = {
    letter: tuple(name.split()) for letter, name in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", _NAMES.split("/"))
}
_PRONOUN = "I"
_PLURALS = (("s",), ("z",))


def acronym_of(word: str, pronunciations: list[Phones]) -> str | None:
    """`i._b._m.` for a word with a capital that one of its pronunciations spells, with or without a final s
    or 's; else None."""
    letters, ending = _without_ending(word)
    if word == word.lower() or not re.fullmatch("[A-Za-z]+('s)?", word):
        return None
    if "'" not in word and _names(word) in pronunciations:
        return _written(word)
    spelled = {_names(letters) + plural for plural in _PLURALS}
    return _written(letters) + ending if ending and letters and spelled & set(pronunciations) else None


def _without_ending(word: str) -> tuple[str, str]:
    """(letters, the final 's or s in lower case or '')"""
    for ending in ("'s", "s"):
        if word.lower().endswith(ending):
            return word[: -len(ending)], ending
    return word, ""


def _names(letters: str) -> Phones:
    return tuple(phone for letter in letters.upper() for phone in LETTER_NAMES[letter])


def _written(letters: str) -> str:
    return "_".join(f"{letter}." for letter in letters.lower())


def acronyms_in(dictionary: Lexicon) -> dict[str, str]:
    """{word in its case: acronym} for all acronyms of a mixed-case dictionary and the 26 capital letters."""
    found = {
        word: acronym
        for word in dictionary.entries
        if (acronym := acronym_of(word, dictionary.pronunciations(word)))
    }
    return found | {letter: _written(letter) for letter in LETTER_NAMES}


def with_acronyms(words: list[str], acronyms: Mapping[str, str]) -> list[str]:
    """Replace words by acronyms, case-sensitively. `I` is a letter only in a run of single letters."""
    result: list[str] = []
    for is_letter, group in groupby(words, LETTER_NAMES.__contains__):
        run = list(group)
        is_pronoun = is_letter and set(run) == {_PRONOUN}
        result += run if is_pronoun else [acronyms.get(word, word) for word in run]
    return result
