"""The source of pronunciations: the user's lexicon, CMUdict for English texts, else letters as phones."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.intake.own.reading.own_corpus import NUM_NAMED
from pyasr.lang.pronouncing.prepare_dict import CMUDICT, LETTERS, read_dictionary

ENGLISH_COVERAGE = 0.85  # share of the running words; English texts reach 98 %, German ones 63 %
_MAX_LETTERS = 150  # largest alphabet; larger sets are characters of words or syllables
_MAX_LENGTH = 20.0  # largest mean length of words separated by blanks


@dataclass(frozen=True)
class LanguageOptions:
    """Options for the language of the texts."""

    heading = "pronunciations"

    lexicon: Path | None = option(
        None,
        "file of pronunciations: lexicon.txt, or in the format of the CMU dictionary if its name "
        "ends in .dict",
    )
    language: str = option(
        "auto",
        "pronunciations without --lexicon; english: the CMU dictionary; letters: each letter is a "
        "phone; auto: chosen by the texts",
        choices=("auto", "english", "letters"),
    )
    normalise: bool = option(
        True,
        "normalise texts by the rules of docs/own_corpus.md; false: they are words separated by blanks",
        heading="input",
    )


@dataclass(frozen=True)
class Language:
    """The choice: `dictionary` for utils/prepare_dict.py, its words, and a sentence with the reason."""

    dictionary: str
    known: frozenset[str]
    is_english: bool
    message: str


def choose_language(texts: Iterable[str], options: LanguageOptions) -> Language:
    """The language of these texts. Raises UserError if they are written without blanks or in characters that
    are not letters."""
    counts = Counter(word for text in texts for word in _rough_words(text))
    _check_words(counts, options)
    if options.lexicon:
        known = frozenset(read_dictionary(str(options.lexicon)).entries)
        message = (
            f"pronunciations of {options.lexicon}, which has {100 * _coverage(counts, known):.1f} % of "
            "the running words"
        )
        return Language(str(options.lexicon.absolute()), known, _is_english(counts), message)
    if options.language == "letters":
        return _letters(counts, "--language letters")
    known = _words_of_cmudict()
    coverage = _coverage(counts, known)
    message = f"CMUdict has {100 * coverage:.1f} % of the running words"
    if options.language == "english" or coverage >= ENGLISH_COVERAGE:
        return Language(CMUDICT, known, True, f"English: {message}")
    return _letters(counts, f"not English, because {message}")


@lru_cache
def _words_of_cmudict() -> frozenset[str]:
    return frozenset(read_dictionary(CMUDICT).entries)


def _rough_words(text: str) -> Iterable[str]:
    """Words in lower case, of letters and apostrophes between them; text in brackets is skipped."""
    text = unicodedata.normalize("NFC", text).lower().replace("\u2019", "'")
    for token in text.split():
        if token[0] not in "[<{":
            letters = "".join(c if c == "'" or unicodedata.category(c)[0] in "LM" else " " for c in token)
            yield from filter(None, (part.strip("'") for part in letters.split()))


def _coverage(counts: Counter, known: frozenset[str]) -> float:
    """The share of running words in a dictionary, case-insensitively."""
    folded = {word.lower() for word in known}
    return sum(count for word, count in counts.items() if word in folded) / max(counts.total(), 1)


def _is_english(counts: Counter) -> bool:
    """Whether the most frequent words are English; needs no English dictionary, which may be missing."""
    common = {"the", "and", "to", "of", "a", "in", "is", "that", "it", "you"}
    return sum(counts[word] for word in common) > 0.08 * counts.total()


def _letters(counts: Counter, reason: str) -> Language:
    letters = Counter[str]()
    for word, count in counts.items():
        letters.update({c: count * number for c, number in Counter(word.replace("'", "")).items()})
    if len(letters) > _MAX_LETTERS:
        found = f"{len(letters)} different letters, such as {' '.join(_commonest(letters))}"
        raise UserError(
            f"the texts have {found}, which are not an alphabet; "
            "give pronunciations with --lexicon FILE, and separate words by blanks"
        )
    script = Counter(
        unicodedata.name(letter, "UNKNOWN").split()[0].capitalize() for letter in letters
    ).most_common(1)[0][0]
    message = (
        f"letters as phones ({reason}): {len(letters)} letters, {script} script, such as "
        f"{' '.join(_commonest(letters))}"
    )
    return Language(LETTERS, frozenset(), False, message)


def _commonest(letters: Counter) -> list[str]:
    return [letter for letter, _ in letters.most_common(2 * NUM_NAMED)]


def _check_words(counts: Counter, options: LanguageOptions) -> None:
    """Raise UserError for texts without words, and for texts written without blanks."""
    if not counts:
        raise UserError(
            "the texts contain no words; check that the right column or tier is read (--columns, --tiers)"
        )
    length = sum(len(word) * count for word, count in counts.items()) / counts.total()
    if length > _MAX_LENGTH:
        found = f"words of the texts have {length:.0f} letters on average, such as {next(iter(counts))[:30]}"
        raise UserError(
            f"{found}: they are written without blanks; "
            "separate the words by blanks, and give pronunciations with --lexicon FILE"
        )
