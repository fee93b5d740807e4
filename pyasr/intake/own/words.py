"""Normalise written texts to spoken words, by the rules in docs/own_corpus.md.

1. Unicode's composed form, without invisible characters; typographic apostrophes become plain ones; blanks of
   any kind separate words.
2. Marks of one word, such as [noise], <laughter> and {cough}, stay; marks of several words are removed.
3. In English, numbers are spelled, and so are the signs & % $ £ € and a few abbreviations. In other languages
   a number that the dictionary lacks has no words: its utterance is left out.
4. All characters except letters, digits and apostrophes within a word separate words; so do hyphens, unless
   the dictionary contains the hyphenated word.
5. Words are in lower case, unless the dictionary contains them in another case.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container

from pyasr.lang.pronouncing.english_numbers import cardinal, ordinal, plural, year

_MARK = re.compile(r"[\[<{][^\[\]<>{}]*[\]>}]")
_APOSTROPHES = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u0060": "'", "\u00b4": "'", "\u2032": "'"}
)
_NUMBER = re.compile(
    r"([$£€])?(?<!\w)(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?(st|nd|rd|th|'?s)?(%)?(?!\w)", re.IGNORECASE
)
_TIME = re.compile(r"(?<![\w:])(\d{1,2}):([0-5]\d)(?![\w:])")
_CURRENCY = {"$": "dollar", "£": "pound", "€": "euro"}
_ABBREVIATIONS = {"mr.": "mister", "mrs.": "missus", "dr.": "doctor", "vs.": "versus", "etc.": "et cetera"}
_MAX_DIGITS = 9
_YEARS = range(1100, 2000)


class Normaliser:
    """Converts texts to words.

    known    words of the dictionary, in its case
    english  spell out numbers, signs and abbreviations
    """

    def __init__(self, known: Container[str], english: bool):
        self.known, self.english = known, english

    def __call__(self, text: str) -> str | None:
        """Words of a text, separated by single blanks; None if it has a number that cannot be spelled."""
        text = "".join(
            c
            for c in unicodedata.normalize("NFC", text).translate(_APOSTROPHES)
            if unicodedata.category(c) != "Cf"
        )
        text = _MARK.sub(
            lambda mark: f" {mark[0]} " if len(mark[0].split()) == 1 and len(mark[0]) > 2 else " ", text
        )
        if self.english:
            text = " ".join(_spelled(token) for token in text.split())
        words = [word for token in text.split() for word in self._words(token)]
        has_number = any(
            c.isdigit()
            for word in words
            if word not in self.known and not _MARK.fullmatch(word)
            for c in word
        )
        return None if has_number else " ".join(words)

    def _words(self, token: str) -> list[str]:
        """A token without blanks as words: unchanged if the dictionary contains it, else split at characters
        that are not letters."""
        if _MARK.fullmatch(token):
            return [token]
        bare = token.strip("".join(c for c in set(token) if not _is_word_sign(c) and c not in "'-"))
        if found := self._in_dictionary(bare.strip("-")):
            return [found]
        parts = "".join(c if _is_word_sign(c) or c == "'" else " " for c in bare).split()
        return [
            self._in_dictionary(part) or self._in_dictionary(bare) or bare.lower()
            for part in parts
            if (bare := part.strip("'"))
        ]

    def _in_dictionary(self, word: str) -> str:
        """The form of a word in the dictionary; '' if it is not there."""
        forms = (word, word.lower(), word.upper(), word.capitalize())
        return next((form for form in forms if form in self.known and any(map(_is_word_sign, form))), "")


def _is_word_sign(character: str) -> bool:
    """Whether a character is a letter, a combining mark or a digit."""
    return unicodedata.category(character)[0] in "LMN"


def _spelled(token: str) -> str:
    """An English token without blanks, with its numbers and signs in words."""
    if _MARK.fullmatch(token):
        return token
    if word := _ABBREVIATIONS.get(token.lower().rstrip(",;:!?")):
        return word
    token = _TIME.sub(_time, token)
    token = _NUMBER.sub(_number, token)
    token = re.sub(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])", " ", token)  # X7
    return _NUMBER.sub(_number, token).replace("&", " and ").replace("%", " percent ")


def _time(match: re.Match) -> str:
    hour, minute = int(match[1]), int(match[2])
    return (
        f" {cardinal(hour)} "
        f"{'o clock' if minute == 0 else f'oh {cardinal(minute)}' if minute < 10 else cardinal(minute)} "
    )


def _number(match: re.Match) -> str:
    currency, digits, fraction, suffix, percent = match.groups()
    words = _integer(digits)
    if fraction:
        words += f" point {_digits(fraction)}"
    words = _with_suffix(words, (suffix or "").lower())
    if currency:
        words += f" {_CURRENCY[currency]}{'' if words == 'one' else 's'}"
    return f" {words}{' percent' if percent else ''} "


def _integer(digits: str) -> str:
    """Integers as cardinals or years; with a leading zero or ten and more digits, digit by digit."""
    plain = digits.replace(",", "")
    if len(plain) > _MAX_DIGITS or plain[0] == "0" and len(plain) > 1:
        return _digits(plain)
    return year(int(plain)) if plain == digits and int(plain) in _YEARS else cardinal(int(plain))


def _digits(text: str) -> str:
    return " ".join(cardinal(int(digit)) for digit in text)


def _with_suffix(words: str, suffix: str) -> str:
    change: Callable[[str], str] | None = (
        ordinal if suffix in ("st", "nd", "rd", "th") else plural if suffix else None
    )
    return change(words) if change else words
