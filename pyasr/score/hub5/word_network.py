"""Texts with alternatives as networks of words.

A text is a list of elements. An element is a word or a list of alternatives, each of which is a list of
elements. A word in parentheses is optional, a word that begins or ends with a hyphen is a fragment, and `@`
stands for no word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

Element: TypeAlias = "str | Sequence[Sequence[Element]]"


@dataclass(frozen=True)
class ScoredWord:
    """A word of a network: `shown` as the text has it, `spelling` as it is compared."""

    shown: str
    spelling: str
    optional: bool
    fragment: bool

    @property
    def is_null(self) -> bool:
        """Whether it represents no word."""
        return self.shown == "@"

    def equals(self, other: ScoredWord) -> bool:
        """Whether the words count as equal. A fragment `th-` equals all words that start with th, `-ing`
        those that end with ing."""
        if self.fragment or other.fragment:
            for one, another in ((self.spelling, other.spelling), (other.spelling, self.spelling)):
                if len(one) > 1 and one[0] == "-":
                    return another.endswith(one[1:])
                if len(one) > 1 and one[-1] == "-":
                    return another.startswith(one[:-1])
        return self.spelling == other.spelling


@lru_cache(maxsize=1_000_000)
def word_of(token: str) -> ScoredWord:
    """The word of a token of a text, without a final `*`."""
    shown = token[:-1] if len(token) > 1 and token[-1] == "*" else token
    optional = shown.startswith("(") and shown.endswith(")")
    fragment = "-" in (shown[:1], shown[-1:]) or (optional and shown[-2] == "-")
    return ScoredWord(shown, shown[1:-1] if optional else shown, optional, fragment)


@dataclass(frozen=True)
class WordNetwork:
    """An acyclic network with a word on each arc; arc 0 is the start and has no word.

    words    of the arcs 1, 2, ..., in topological order
    before   int32: the predecessors of all arcs
    offsets  int32 (num_words + 2): the predecessors of arc i are before[offsets[i]:offsets[i + 1]]; arc 0 has
             none
    last     int32: the final arcs
    """

    words: tuple[ScoredWord, ...]
    before: np.ndarray
    offsets: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, elements: Sequence[Element]) -> WordNetwork:
        """The network of a text; predecessors are in the order of the alternatives."""
        words: list[ScoredWord] = []
        before: list[list[int]] = []
        last = _add(elements, [0], words, before)
        offsets = np.cumsum([0, 0, *map(len, before)], dtype=np.int32)
        arcs = np.array([arc for arcs in before for arc in arcs], np.int32)
        return cls(tuple(words), arcs, offsets, np.array(last, np.int32))


def _add(
    elements: Sequence[Element], places: list[int], words: list[ScoredWord], before: list[list[int]]
) -> list[int]:
    """Append elements after the arcs `places`. Returns the final arcs of the appended part."""
    for element in elements:
        if isinstance(element, str):
            words.append(word_of(element))
            before.append(places)
            places = [len(words)]
        elif element:
            places = [last for alternative in element for last in _add(alternative, places, words, before)]
    return places


def elements_of(text: str) -> list[Element]:
    """The elements of a transcript with alternatives `{ A / B C / @ }`, which may be nested."""
    return [
        [elements_of(part) for part in _alternatives(token)] if "{" in token else token
        for token in _tokens(text)
    ]


def _tokens(text: str) -> Iterator[str]:
    """Words, and alternatives with their braces."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end = _end_of_alternatives(text, at) if text[at] == "{" else at + len(text[at:].split(maxsplit=1)[0])
        yield text[at:end]
        at = end


def _end_of_alternatives(text: str, at: int) -> int:
    """The index after the brace that closes the one at `at`."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return end + 1
    return len(text)


def _alternatives(token: str) -> list[str]:
    """The alternatives of a token, without empty ones."""
    inner, parts, depth = token[1:].rpartition("}")[0] or token[1:], [""], 0
    for letter in inner:
        depth += (letter == "{") - (letter == "}")
        if letter == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]
