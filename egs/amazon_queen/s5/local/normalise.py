"""Normalise the texts on the game's screen to transcripts: lower case, no punctuation, numbers spelled, words
as in the CMU dictionary."""

from __future__ import annotations

import re

from pyasr.lang.pronouncing.english_numbers import cardinal, ordinal, plural, year

_ABBREVIATIONS = {"vs": "versus", "dr": "doctor"}
_NUMBER = re.compile(r"(\d+):00|(\d+)(st|nd|rd|th|'?s)?", re.IGNORECASE)


def normalise(text: str, numbers: str = "spell") -> str:
    """The words of `text`, separated by single blanks; apostrophes stay, hyphens and dots separate words.
    `numbers`: spell or drop.

    >>> normalise('My "Model X7" crashed in 1944, Dr. King!')
    'my model x seven crashed in nineteen forty four doctor king'
    """
    if numbers == "spell":
        text = _NUMBER.sub(_spell, text)
    words = re.sub(r"[^a-z']", " ", text.lower()).split()
    words = [_ABBREVIATIONS.get(word, word) for word in words]
    return " ".join(word for word in words if word.strip("'"))


def _spell(match: re.Match) -> str:
    hour, digits, suffix = match.groups()
    if hour:
        return f" {cardinal(int(hour))} hundred "
    value, suffix = int(digits), (suffix or "").lower()
    words = year(value) if 1100 <= value < 2000 else cardinal(value)
    if suffix in ("st", "nd", "rd", "th"):
        words = ordinal(words)
    elif suffix:
        words = plural(words)
    return f" {words} "
