"""The dictionary of Fisher English: the CMU dictionary for the words of the transcripts, acronyms spelled by
letters, noises.

Phones are those of the CMU dictionary in lower case, without stress. `sil`, and the phones of noises and of
unknown words, are silence phones; one question of the tree covers all of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.dictionaries import MISSING_FILE, by_count, dict_dir_of
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon, Phones
from pyasr.lang.symbols import write_lines

SILENCE, OOV_WORD = "sil", "<unk>"
NOISES = {"[laughter]": "laughter", "[noise]": "noise", "[oov]": "oov", OOV_WORD: "oov"}
_FURTHER = {"mm": ("m",)}


def in_lower_case(lexicon: Lexicon) -> Lexicon:
    """A lexicon with words and phones in lower case."""
    lowered = Lexicon()
    for word, variants in lexicon.entries.items():
        for phones in variants:
            lowered.add(word.lower(), tuple(phone.lower() for phone in phones))
    return lowered


def of_words(counts: Counter[str], dictionary: Lexicon) -> tuple[Lexicon, Counter[str]]:
    """(pronunciations of the words in the dictionary, counts of the others); an acronym `c._n._n.` is
    pronounced as its parts.

    counts      {word: count}
    dictionary  in lower case, without stress
    """
    lexicon, missing = Lexicon(), Counter[str]()
    for word, count in counts.items():
        found = dictionary.pronunciations(word) or _of_acronym(word, dictionary)
        for phones in found:
            lexicon.add(word, phones)
        if not found:
            missing[word] = count
    return lexicon, missing


def _of_acronym(word: str, dictionary: Lexicon) -> list[Phones]:
    """The first pronunciations of the parts between `_`, joined; none if a part is not in the dictionary."""
    parts = [dictionary.pronunciations(part) for part in word.split("_")]
    return [sum((variants[0] for variants in parts), ())] if len(parts) > 1 and all(parts) else []


def as_dict_dir(lexicon: Lexicon, noises: dict[str, str] = NOISES) -> DictDir:
    """The dictionary directory of these words and `noises`, {word: silence phone}."""
    for word, phones in _FURTHER.items():
        lexicon.add(word, phones)
    for word, phone in noises.items():
        lexicon.add(word, (phone,))
    silence = list(dict.fromkeys([SILENCE, *noises.values()]))
    return dict_dir_of(lexicon, silence, [tuple(silence)])


def write_dict(
    counts: Counter[str], dictionary: Lexicon, out: Path, noises: dict[str, str] = NOISES
) -> Lexicon:
    """Fill the directory `out`, with `missing_words.txt` (COUNT WORD); returns the lexicon.

    Raises UserError if none of the words is in the dictionary.
    """
    lexicon, missing = of_words(
        Counter({word: counts[word] for word in counts if word not in noises}), dictionary
    )
    if not lexicon.entries:
        raise UserError(
            "no word of the transcripts is in the dictionary; give an English one with --dictionary"
        )
    _log_missing(counts, missing)
    as_dict_dir(lexicon, noises).write(out)
    write_lines(out / MISSING_FILE, [f"{count} {word}" for word, count in by_count(missing)])
    return lexicon


def _log_missing(counts: Counter[str], missing: Counter[str]) -> None:
    share = 100 * missing.total() / max(counts.total(), 1)
    examples = ", ".join(f"{word} ({count})" for word, count in missing.most_common(5))
    log.info(
        f"{len(missing)} of {len(counts)} words ({share:.2f} % of the running words) have no pronunciation "
        f"and become {OOV_WORD}{': ' * bool(missing)}{examples}"
    )
