"""Words of telephone speech that scoring against an stm treats specially, as Kaldi's recipes for Switchboard
do.

Noises and unknown words are not scored. Hesitations and fragments are optional. An acronym is scored as its
letters: `i._b._m.` is i b m, `t._v.s` and `t._v.'s` are t v's.
"""

from __future__ import annotations

import re

_HESITATIONS = "uh|um|eh|mm|hm|ah|huh|ha|er|oof|hee|ach|eee|ew"
_UNSCORED = re.compile(r"\[(?:noise|laughter|vocalized-noise)\]|<unk>", re.IGNORECASE)
_OPTIONAL = re.compile(rf".*-|{_HESITATIONS}", re.IGNORECASE)
_ACRONYM = re.compile(r"((?:[a-z]\._)*[a-z]\.)('?s)?", re.IGNORECASE)


def is_unscored(word: str) -> bool:
    """Whether `word` is a noise or the unknown word."""
    return _UNSCORED.fullmatch(word) is not None


def is_optional(word: str) -> bool:
    """Whether `word` is a hesitation or a fragment, such as `th-`."""
    return _OPTIONAL.fullmatch(word) is not None


def letters_of(word: str) -> list[str]:
    """The words that are scored for `word`: the letters of an acronym, else the word itself."""
    acronym = _ACRONYM.fullmatch(word)
    if not acronym:
        return [word]
    letters = acronym[1].rstrip(".").split("._")
    return [*letters[:-1], letters[-1] + ("'s" if acronym[2] else "")]
