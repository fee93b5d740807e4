"""Text filter of NIST's csrfilt -dh: upper case, the rules of a glm, then blanks for hyphens in words."""

from __future__ import annotations

import re

from pyasr.data.transcripts.glm import RuleSet, ascii_upper

_SPACED_PARENTHESES = str.maketrans({"(": "( ", ")": " )"})
_INNER_HYPHEN = re.compile(r"([^( ])-(?=[^) ])")
_SECOND_IN_PARENTHESES = re.compile(r"(\(\s+[^()\s]+\s+)([^()\s]+)")
_INNER_BLANK = re.compile(r"(?<=\()\s+|\s+(?=\))")
_OPTIONAL_ALTERNATIVES = re.compile(r"\(([^()]*\{[^()]*)\)")
_WORD_OF_ALTERNATIVES = re.compile(r"[^\s{}/@]+")


def filtered_text(text: str, rules: RuleSet) -> str:
    """A transcript after the filter.

    Parentheses with several words become one pair of parentheses per word. If a rule replaces an optional
    word by alternatives, all words of the alternatives become optional; the text that csrfilt writes in this
    case crashes sclite.
    """
    inner = " ".join(ascii_upper(text).split()).translate(_SPACED_PARENTHESES)
    inner = _INNER_HYPHEN.sub(r"\1 ", rules.apply(f"  {inner}  "))
    inner = _OPTIONAL_ALTERNATIVES.sub(lambda match: _WORD_OF_ALTERNATIVES.sub(r"( \g<0> )", match[1]), inner)
    while (divided := _SECOND_IN_PARENTHESES.sub(r"\1) ( \2", inner, count=1)) != inner:
        inner = divided
    return " ".join(_INNER_BLANK.sub("", inner).split())


def filtered_word(word: str, rules: RuleSet) -> list[list[str]]:
    """The alternatives of a ctm word after the filter, each a list of words; [] if a rule deletes it."""
    alternatives = filtered_text(word, rules).replace("{", " ").replace("}", " ").split("/")
    return [words for alternative in alternatives if (words := alternative.split())]
