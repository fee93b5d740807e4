"""From the texts on the game's screen to transcripts: lower case, no punctuation, numbers spelled, as the CMU dictionary writes words."""

from __future__ import annotations

import re

_ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
         "nineteen").split()
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = dict(one="first", two="second", three="third", five="fifth", eight="eighth", nine="ninth", twelve="twelfth")
_ABBREVIATIONS = {"vs": "versus", "dr": "doctor"}
_NUMBER = re.compile(r"(\d+):00|(\d+)(st|nd|rd|th|'?s)?", re.IGNORECASE)


def normalise(text: str, numbers: str = "spell") -> str:
    """The words of `text`, separated by single blanks; apostrophes stay, hyphens and dots separate. `numbers`: spell or drop.

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
    value = int(digits)
    words = year(value) if 1100 <= value < 2000 else cardinal(value)
    suffix = (suffix or "").lower()
    if suffix in ("st", "nd", "rd", "th"):
        words = _last(words, lambda word: _ORDINALS.get(word) or re.sub("y$", "ie", word) + "th")
    elif suffix:
        words = _last(words, lambda word: re.sub("y$", "ie", word) + "s")
    return f" {words} "


def _last(words: str, change) -> str:
    head, _, tail = words.rpartition(" ")
    return f"{head} {change(tail)}".strip()


def cardinal(value: int) -> str:
    """0 to 999,999 in words, without 'and'."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10] + (f" {_ONES[value % 10]}" if value % 10 else "")
    unit, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    rest = f" {cardinal(value % unit)}" if value % unit else ""
    return f"{cardinal(value // unit)} {name}{rest}"


def year(value: int) -> str:
    """1944 as 'nineteen forty four'."""
    century, rest = divmod(value, 100)
    tail = "hundred" if rest == 0 else f"oh {_ONES[rest]}" if rest < 10 else cardinal(rest)
    return f"{cardinal(century)} {tail}"
