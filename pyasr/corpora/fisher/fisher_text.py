"""Words of Fisher's transcripts: for acoustic training, and for language models that are mixed with
Switchboard's.

The rules are those of Kaldi's recipes fisher_english (acoustic) and swbd (language models), which differ in
noises of the mouth: `[mn]` is `[noise]` in the first and `[vocalized-noise]` in the second.
"""

from __future__ import annotations

import re

_NOISES = dict.fromkeys(("breath", "cough", "lipsmack", "noise", "sigh", "sneeze"), "[noise]")
_OTHERS = {"laugh": "[laughter]", "laughter": "[laughter]", "skip": "", "pause": ""}
ACOUSTIC_MARKS = {**_NOISES, **_OTHERS, "mn": "[noise]"}
LM_MARKS = {**_NOISES, **_OTHERS, "mn": "[vocalized-noise]"}
_MARK = re.compile(r"((?<!\S)-)?\[+(\w+)\]+(-(?!\S))?")  # with the hyphen of a truncated word
_SHORTENED = re.compile(r"(?<!\S)'(?=(?:blade|cause|course|frisco|okay|plain|specially)(?!\S))")
_QUOTED = re.compile(r"(?<!\S)'(?=\S)([^']*(?:'(?=\S)[^']*)*)'(?!\S)")
_WHOLE_WORDS = frozenset(
    "acceptable arthritis ball cause comes course eight eighty field giving habitating heard hood how king "
    "ninety okay paper press scripts store till vascular wood what york".split()
)


def is_unsure(text: str) -> bool:
    """Whether the transcriber was unsure of some words, which are between `((` and `))`."""
    return "((" in text or "))" in text


def acoustic_words(text: str) -> str:
    """The words for acoustic training; '' if nothing is left.

    >>> acoustic_words("[sigh] well [[skip]] c._n._n. th- [laugh]-")
    '[noise] well c._n._n. th- [laughter]'
    """
    return " ".join(_with_marks(text, ACOUSTIC_MARKS).split())


def lm_words(text: str) -> str:
    """The words for a language model that is mixed with Switchboard's, in its spelling; '' if nothing is
    left.

    >>> lm_words("'cause (( the )) non-stop york- 'kay - [mn]")
    'cause the non stop york -kay [vocalized-noise]'
    """
    text = re.sub(r"<[^>]*>", " ", re.sub(r'[*()?"]', "", text.lower()))
    text = _with_marks(re.sub(r"(?<=\w),(?=\w|\s|$)", " ", text), LM_MARKS)
    text = re.sub(r"(?<!\S)'em(?!\w)", "-em", _SHORTENED.sub("", text))
    return " ".join(word for token in _QUOTED.sub(r"\1", text).split() for word in _lm_words_of(token))


def _lm_words_of(token: str) -> list[str]:
    if token.strip("-") == "":
        return []
    if token.startswith("non-") and re.fullmatch(r"\w+", token[4:]):
        return ["non", token[4:]]
    inner = token.removeprefix("-").removesuffix("-")
    if inner in _WHOLE_WORDS:
        return [inner]
    return ["-" + token[1:] if token.startswith("'") else token]


def _with_marks(text: str, marks: dict[str, str]) -> str:
    """Replace known marks, such as `[laugh]` and `[[skip]]`, by separate words; other marks are unchanged."""
    return _MARK.sub(
        lambda found: f" {marks[found[2].lower()]} " if found[2].lower() in marks else found[0], text
    )
