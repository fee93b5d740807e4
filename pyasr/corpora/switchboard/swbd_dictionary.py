"""The dictionary of Mississippi State's transcripts, `sw-ms98-dict.text`, and the lexicon derived from it.

 file: $SWB/data/dictionary/sw-ms98-dict.text       no entry
# a comment
ab[solute]- ae b s                                  words in the forms of the transcripts, in their case,
                                                    phones in lower case
AT&amp;T ey t iy ax n t iy
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.corpora.dictionaries import MISSING_FILE, CorpusDictOptions, by_count, dict_dir_of
from pyasr.corpora.discs import places_in
from pyasr.corpora.switchboard.acronyms import LETTER_NAMES, acronyms_in
from pyasr.corpora.switchboard.swbd_text import NOISES, word_of
from pyasr.corpora.switchboard.swbd_transcripts import Transcripts, find_transcripts
from pyasr.corpora.texts import lines_of
from pyasr.data.transcripts.spoken import letters_of
from pyasr.io.text_tables import write_table
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon, Phones, read_cmudict
from pyasr.lang.pronouncing.prepare_dict import DictOptions, look_up
from pyasr.lang.symbols import write_lines

SILENCE_PHONES = ("sil", "spn", "nsn", "lau")
OOV_WORD = "<unk>"
_OF_NOISES = {
    "!sil": "sil",
    "[vocalized-noise]": "spn",
    "[noise]": "nsn",
    "[laughter]": "lau",
    OOV_WORD: "spn",
}
_NO_ENTRY = re.compile(r"\s*(#.*|file:.*)?")
_REDUCED = {"AH0": "ax", "SPN": "spn"}  # mapping of the CMU dictionary's phones; others lose their stress


@dataclass(frozen=True)
class SwitchboardDictOptions(CorpusDictOptions):
    """Options of a program that creates a dictionary directory from Mississippi State's dictionary."""

    swbd: str = option("", "directories of LDC97S62, separated by colons")
    transcripts: str = option(
        "", "directory or archive of Switchboard's transcripts; empty: those on the discs"
    )

    def sources(self) -> list[Path]:
        """The files of the transcripts. Raises UserError if there are none."""
        return find_transcripts(places_in(self.transcripts) or places_in(self.swbd))


def read_dictionary(transcripts: Transcripts) -> Lexicon:
    """`entries_in` the dictionary of the transcripts. Raises UserError if it has no entries."""
    name, content = transcripts.dictionary
    lexicon = entries_in(lines_of(content, name), name)
    if not lexicon:
        raise UserError(f"{name}: no entries; expected lines 'WORD PHONE PHONE...', as in sw-ms98-dict.text")
    return lexicon


def entries_in(lines: list[str], name: object) -> Lexicon:
    """The words of a dictionary, in their case; forms of the transcripts are converted by `word_of`.

    Noises, silence and pronunciations with a silence phone are left out, the latter with a warning. A line
    without phones is left out and logged. `name`: the file, for messages.
    """
    lexicon, without = Lexicon(), []
    for number, line in enumerate(lines, 1):
        if _NO_ENTRY.fullmatch(line):
            continue
        token, *sounds = line.split()
        word, phones = word_of(token), tuple(phone.lower() for phone in sounds)
        if not word or word in NOISES:
            continue
        if not phones or not set(SILENCE_PHONES).isdisjoint(phones):
            without.append(f"{number} ('{line.strip()}')")
            continue
        lexicon.add(word, phones)
    if without:
        more = " ..." * (len(without) > 3)
        log.warning(
            f"{name}: {len(without)} lines without a pronunciation of speech are left out: "
            f"{', '.join(without[:3])}{more}"
        )
    return lexicon


def lexicon_of(dictionary: Lexicon) -> tuple[Lexicon, dict[str, str]]:
    """(lower-case lexicon with noises, letters and acronyms; {word in its case: acronym} for transcripts)."""
    acronyms, lexicon = acronyms_in(dictionary), Lexicon()
    for word, phone in _OF_NOISES.items():
        lexicon.add(word, (phone,))
    for word, variants in dictionary.entries.items():
        for phones in variants:
            lexicon.add(word.lower() if word == "I" else acronyms.get(word, word.lower()), phones)
    for letter, phones in LETTER_NAMES.items():
        lexicon.add(acronyms[letter], phones)
    lexicon.add("i", LETTER_NAMES["I"])
    return lexicon, acronyms


def add_missing(lexicon: Lexicon, counts: Counter[str]) -> list[str]:
    """Add the words of a text that the lexicon lacks, with pronunciations of the CMU dictionary, or guessed
    from the letters.

    Returns a line per word: count, word, source of the pronunciation, pronunciation; most frequent first.
    """
    lacking = Counter({word: count for word, count in counts.items() if word not in lexicon})
    if not lacking:
        return []
    vocabulary = look_up(lacking, read_cmudict(stress=True), DictOptions(stress=True, oov_word=OOV_WORD))
    log.info(
        f"{len(lacking)} words are not in the dictionary of the transcripts; of the CMU dictionary: "
        f"{vocabulary.summary()}"
    )
    rows = []
    for word, count in by_count(lacking):
        guess = vocabulary.missing.get(word)
        source = guess.method.replace(" ", "-") if guess else "cmudict"
        for phones in map(as_phones_of_switchboard, vocabulary.lexicon.pronunciations(word)):
            lexicon.add(word, phones)
            rows.append(f"{count} {word} {source} {' '.join(phones)}")
    return rows


def as_phones_of_switchboard(phones: Phones) -> Phones:
    """Map phones of the CMU dictionary, with stress, to Mississippi State's set: lower case, `ax` for an
    unstressed AH."""
    return tuple(_REDUCED.get(phone, phone.rstrip("012").lower()) for phone in phones)


def as_dict_dir(lexicon: Lexicon) -> DictDir:
    """The dictionary directory: silence phones sil, spn, nsn, lau; sil is optional between words; no extra
    questions."""
    return dict_dir_of(lexicon, list(SILENCE_PHONES), [])


def write_dict(out: Path, counts: Counter[str], dictionary: Lexicon) -> Lexicon:
    """Fill the directory `out` with the dictionary directory of `dictionary`, extended by the words of a
    text, {word: count}, that it lacks (`missing_words.txt`), and with tables of acronyms; returns the
    lexicon."""
    lexicon, acronyms = lexicon_of(dictionary)
    write_lines(out / MISSING_FILE, add_missing(lexicon, counts))
    as_dict_dir(lexicon).write(out)
    write_table(out / "acronyms.txt", acronyms)
    write_table(
        out / "acronyms_spelled.txt",
        {acronym: " ".join(letters_of(acronym)) for acronym in acronyms.values()},
    )
    return lexicon
