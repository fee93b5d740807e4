"""Pronunciations for words that a dictionary lacks: rules for cases that letters do not determine, else a
joint-sequence model.

The rules, in this order: possessives and contractions (`queen's`, `why've`), dropped g (`stickin'`), hyphens
and apostrophes, accents that the dictionary does not have (`café`), interjections, stretched words
(`beeeeautiful`), words without vowels (mumbled, or spelt if short). Endings, compounds and British spellings
have no rules, because the model is better at them on held-out words of the CMU dictionary
(docs/lang/lang.md).
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from pyasr.lang.lexicons.lexicon import Lexicon, Phones
from pyasr.lang.pronouncing.graphones import JointModel

_SIBILANTS, _VOICELESS = {"S", "Z", "SH", "ZH", "CH", "JH"}, {"P", "T", "K", "F", "TH"}

_CONTRACTIONS = {
    "'ll": "AH L",
    "'ve": "AH V",
    "'re": "ER",
    "'d": "D",
    "'m": "M",
    "n't": "AH N T",
    "'em": "AH M",
}

# Interjections with their conventional spellings; the letters may be stretched.
_INTERJECTIONS = """
a+h+ AA/a+r+g+h* AA R G/a+w+ AO/a+hem AH HH EH M/b+r+ B ER/e+k+ IY K/e+r+ ER/e+r+m+ ER M/e*u+g*r+g*h+ ER G
e+w+ IY UW/g+r+ G ER/h+m+ HH AH M/h+u+h+ HH AH/m+ M/m+h+m+ M HH M/n+y+a+h* N Y AA/o+h+ OW/o+o+h* UW
o+o+f+ UW F/o+w+ AW/p+f+t* P F/p+h+e+w+ F Y UW/p+s+t+ P S T/s+h+ SH/t+s+k+ T IH S K/u+g+h+ AH G/u+h+ AH
u+m+ AH M/u+n+g+h* AH NG/u+n+g+h*a+h* AH NG G AH/w+h+o+a+h* W OW/w+h+[eo]{2,} W UW/y+e+c+h+ Y EH K/z+ Z
"""
_INTERJECTION = [
    (re.compile(pattern + "$"), tuple(phones.split()))
    for pattern, phones in (
        entry.split(" ", 1) for entry in _INTERJECTIONS.strip().replace("\n", "/").split("/")
    )
]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NAMES = (
    "EY/B IY/S IY/D IY/IY/EH F/JH IY/EY CH/AY/JH EY/K EY/EH L/EH M/EH N/"
    "OW/P IY/K Y UW/AA R/EH S/T IY/Y UW/V IY/D AH B AH L Y UW/EH K S/W AY/Z IY"
)
_LETTER_NAMES = {letter: tuple(name.split()) for letter, name in zip(_LETTERS, _NAMES.split("/"))}
_SOUNDS = "B/K/D/F/G/HH/JH/K/L/M/N/P/K/ER/S/T/V/W/K S/Z"
_CONSONANTS = {
    letter: tuple(sound.split()) for letter, sound in zip("bcdfghjklmnpqrstvwxz", _SOUNDS.split("/"))
}


@dataclass(frozen=True)
class Guess:
    """A pronunciation and its method: 'possessive', 'interjection', 'model', ..."""

    phones: Phones
    method: str


def usual_spelling(word: str) -> str:
    """The word in lower case, with composed accents and the ASCII apostrophe (don’t as don't)."""
    return unicodedata.normalize("NFC", word.lower()).replace("\u2019", "'")


def _is_spoken(character: str) -> bool:
    """Whether the character is a letter of any alphabet, or a combining mark (accents, Indian vowels)."""
    return unicodedata.category(character)[0] in "LM"


def _is_trainable(word: str) -> bool:
    """Whether the word consists of letters, with single hyphens and apostrophes between them."""
    return all(part.isalpha() or (part and all(map(_is_spoken, part))) for part in re.split("['-]", word))


def plural_ending(phones: Phones) -> Phones:
    """Phones of -s or -'s after `phones`."""
    last = phones[-1].rstrip("012")
    if last in _SIBILANTS:
        return ("AH", "Z")
    return ("S",) if last in _VOICELESS else ("Z",)


class LetterToSound:
    """Guesses pronunciations of words missing from `lexicon` (words in lower case); its phones have stress if
    those of the lexicon do."""

    def __init__(self, lexicon: Lexicon, model: JointModel, counts: Counter | None = None):
        self.lexicon, self.model, self.counts = lexicon, model, counts or Counter()
        self._phones = set(model.phones)
        self._stress = any(phone[-1].isdigit() for phone in model.phones)

    @classmethod
    def train(cls, lexicon: Lexicon, counts: Counter | None = None, order: int = 7) -> LetterToSound:
        """Train the model on all ordinary words of `lexicon`; `counts` of words in a text decide between
        equally good readings.

        A lexicon with stress gives slightly better guesses, even if the stress is removed afterwards. The
        rules are for English in ARPAbet; if they give phones that the lexicon does not have, the model is
        used. Raises UserError if no word can be aligned.
        """
        lexicon = _in_lower_case(lexicon)
        pairs = [
            (word, phones)
            for word in lexicon.entries
            if _is_trainable(word)
            for phones in lexicon.entries[word]
        ]
        return cls(lexicon, JointModel.train(pairs, order), counts)

    def pronounce(self, word: str) -> Guess | None:
        """Pronunciation of `word` (any case), or None if none of its letters can be spoken."""
        word = usual_spelling(word)
        for method, rule in self._rules():
            phones = rule(word)
            if phones and self._phones.issuperset(phones):
                return Guess(phones, method)
        return self._by_model(word)

    def _stressed(self, phones: Phones, digit: str = "1") -> Phones:
        """Phones of the tables above, with stress if the lexicon has it."""
        return tuple(phone + digit if self._stress and phone[0] in "AEIOU" else phone for phone in phones)

    def _rules(self):
        return (
            ("possessive", self._possessive),
            ("contraction", self._contraction),
            ("dropped g", self._dropped_g),
            ("parts", self._parts),
            ("accents", self._without_accents),
            ("interjection", self._interjection),
            ("stretched", self._stretched),
            ("no vowels", self._without_vowels),
        )

    def _known(self, word: str) -> Phones | None:
        """The first pronunciation in the dictionary."""
        variants = self.lexicon.pronunciations(word)
        return variants[0] if variants else None

    def _known_or_guessed(self, word: str) -> Phones | None:
        known = self._known(word)
        if known or not word:
            return known
        guess = self.pronounce(word)
        return guess.phones if guess else None

    def _possessive(self, word: str) -> Phones | None:
        if word.endswith("s'") and len(word) > 2:
            return self._known_or_guessed(word[:-1])
        if word.endswith("'s") and len(word) > 2:
            base = self._known_or_guessed(word[:-2])
            return base + self._stressed(plural_ending(base), "0") if base else None
        return None

    def _contraction(self, word: str) -> Phones | None:
        for ending, sound in _CONTRACTIONS.items():
            if word.endswith(ending) and len(word) > len(ending):
                base = self._known_or_guessed(word.removesuffix(ending))
                return base + self._stressed(tuple(sound.split()), "0") if base else None
        return None

    def _dropped_g(self, word: str) -> Phones | None:
        """stickin' as sticking, with N instead of NG."""
        if not word.endswith("in'") or len(word) < 5:
            return None
        full = self._known_or_guessed(word[:-1] + "g")
        return (*full[:-1], "N") if full and full[-1] == "NG" else full

    def _parts(self, word: str) -> Phones | None:
        """Parts between hyphens and apostrophes, pronounced one by one."""
        runs = (
            "".join(run)
            for inside, run in itertools.groupby(word, lambda c: c == "'" or _is_spoken(c))
            if inside
        )
        parts = [part for part in runs if any(map(str.isalpha, part))]
        if len(parts) == 1 and parts[0] == word:
            inner = word.strip("'")
            return self._known_or_guessed(inner) if inner and inner != word else None
        sounds = [self._known_or_guessed(part) for part in parts]
        spoken = [sound for sound in sounds if sound]
        return tuple(itertools.chain(*spoken)) if spoken and len(spoken) == len(sounds) else None

    def _without_accents(self, word: str) -> Phones | None:
        """Letters that the dictionary lacks, replaced by those that they are composed of: café as cafe."""
        spelt = [self._known_letters(character) for character in word]
        return self._known_or_guessed("".join(spelt)) if all(spelt) and "".join(spelt) != word else None

    def _known_letters(self, character: str) -> str:
        """The character, or the dictionary's letters of which it is composed; empty if there are none."""
        letters = self.model.letters
        if character in letters or not _is_spoken(character):
            return character
        return "".join(filter(letters.__contains__, unicodedata.normalize("NFKD", character.casefold())))

    def _stretched(self, word: str) -> Phones | None:
        """beeeeautiful: every run of three or more letters shortened to one or two; the most frequent reading
        in the text is used."""
        if not re.search(r"(.)\1\1", word):
            return None
        pieces = [piece.group() for piece in re.finditer(r"(.)\1*", word)]
        options = [(piece,) if len(piece) < 3 else (piece[:2], piece[0]) for piece in pieces]
        readings = ["".join(choice) for choice in itertools.product(*options)]
        known = [reading for reading in readings if reading in self.lexicon]
        if known:
            return self._known(
                max(known, key=lambda reading: (self.counts[reading], -readings.index(reading)))
            )
        return self._known_or_guessed(readings[0])

    def _interjection(self, word: str) -> Phones | None:
        return next(
            (self._stressed(phones) for pattern, phones in _INTERJECTION if pattern.match(word)), None
        )

    def _without_vowels(self, word: str) -> Phones | None:
        """Short words are spelt (fx). Others, and those with r, are mumbled: each consonant once, r as ER
        (grrblt)."""
        letters = "".join(filter(_is_spoken, word))
        if not letters or not _CONSONANTS.keys() >= set(letters):
            return None
        if len(letters) <= 3 and "r" not in letters:
            return self._stressed(tuple(itertools.chain(*(_LETTER_NAMES[letter] for letter in letters))))
        return self._stressed(
            tuple(itertools.chain(*(_CONSONANTS[letter] for letter, _ in itertools.groupby(letters))))
        )

    def _by_model(self, word: str) -> Guess | None:
        letters = list(filter(_is_spoken, word))
        known = [letter for letter in letters if letter in self.model.letters]
        best = self.model.pronounce("".join(known))
        return Guess(best[0][0], "model" if known == letters else "known letters") if best else None


def _in_lower_case(lexicon: Lexicon) -> Lexicon:
    """The lexicon if all words are in lower case; else a copy that merges entries that differ in case."""
    if all(word == word.lower() for word in lexicon.entries):
        return lexicon
    lower = Lexicon()
    for word, variants in lexicon.entries.items():
        for phones, probability in variants.items():
            lower.add(word.lower(), phones, probability)
    return lower
