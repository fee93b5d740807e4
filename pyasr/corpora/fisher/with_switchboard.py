"""A joint dictionary of Fisher and Switchboard: Fisher's, plus Switchboard's acronyms in Fisher's phones.

Mississippi State's dictionary of Switchboard has three phones that the CMU dictionary does not have: ax, en,
el.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyasr.corpora.fisher.fisher_dictionary import OOV_WORD, in_lower_case, write_dict
from pyasr.corpora.switchboard.swbd_dictionary import lexicon_of
from pyasr.lang.lexicons.lexicon import Lexicon, Phones, read_cmudict

NOISES_OF_BOTH = {"[laughter]": "laughter", "[noise]": "noise", "[vocalized-noise]": "noise", OOV_WORD: "oov"}
_IN_CMU_PHONES = {"ax": ("ah",), "en": ("ah", "n"), "el": ("ah", "l")}


def in_cmu_phones(phones: Phones) -> Phones:
    """Map Mississippi State's phones to those of the CMU dictionary, in lower case."""
    return tuple(phone for one in phones for phone in _IN_CMU_PHONES.get(one, (one,)))


def acronyms_of(dictionary: Lexicon) -> Lexicon:
    """The acronyms, such as `i._b._m.`, of Mississippi State's dictionary, in phones of the CMU dictionary.

    dictionary  in mixed case, as `pyasr.corpora.switchboard.swbd_dictionary.read_dictionary` reads it
    """
    lexicon, acronyms = lexicon_of(dictionary)
    found = Lexicon()
    for acronym in sorted(set(acronyms.values())):
        for phones in lexicon.pronunciations(acronym):
            found.add(acronym, in_cmu_phones(phones))
    return found


def write_joint_dict(out: Path, counts: Counter[str], dictionary: Lexicon) -> Lexicon:
    """Fill the directory `out` with the dictionary of the words of a text, {word: count}, and of all
    acronyms; returns the lexicon.

    dictionary  Mississippi State's, as for `acronyms_of`
    """
    acronyms = acronyms_of(dictionary)
    words = Counter({**dict.fromkeys(acronyms.entries, 0), **counts})
    return write_dict(words, _with(acronyms), out, NOISES_OF_BOTH)


def _with(acronyms: Lexicon) -> Lexicon:
    """The CMU dictionary in lower case with further pronunciations of acronyms."""
    dictionary = in_lower_case(read_cmudict())
    for word, _, phones in acronyms.rows():
        dictionary.add(word, phones)
    return dictionary
