"""Letters as phones: a pronunciation dictionary for languages without one."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from pyasr.lang.lexicons.lexicon import Lexicon, Phones


def letters_of(word: str) -> Phones:
    """The letters of a word in lower case, composed with their accents; vowel signs of Indian scripts and
    digits count as letters.

    Apostrophes and hyphens are not pronounced.
    """
    return tuple(c for c in unicodedata.normalize("NFC", word.lower()) if unicodedata.category(c)[0] in "LMN")


def letter_lexicon(words: Iterable[str]) -> Lexicon:
    """Lexicon of the words with their letters as phones; words without a letter are skipped."""
    lexicon = Lexicon()
    for word in words:
        if letters := letters_of(word):
            lexicon.add(word, letters)
    return lexicon
