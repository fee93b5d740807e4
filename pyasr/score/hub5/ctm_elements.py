"""The words of a ctm as elements of a network, each with the time that assigns it to a segment.

A ctm can contain alternatives in NIST's format:

    sw_4390 A * * <ALT_BEGIN>
    sw_4390 A 1.20 0.40 IT'S
    sw_4390 A * * <ALT>
    sw_4390 A 1.20 0.20 IT
    sw_4390 A 1.40 0.20 IS
    sw_4390 A * * <ALT_END>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.data.transcripts.glm import RuleSet
from pyasr.data.transcripts.stm import parentheses_match
from pyasr.io.text_tables import read_lines
from pyasr.score.hub5.csrfilt import filtered_word
from pyasr.score.hub5.word_network import Element

_FORM = "'FILE CHANNEL BEGIN DURATION WORD [CONFIDENCE]'"
_DECIMALS = 3  # of the times that csrfilt writes

Side = tuple[str, str]  # (file, channel) in lower case


@dataclass(frozen=True)
class CtmEntry:
    """Alternatives of a ctm, each a tuple of words. A word without alternatives is an entry with one
    alternative of one word."""

    alternatives: tuple[tuple[CtmLine, ...], ...]

    @property
    def first(self) -> CtmLine:
        """The first word."""
        return next(line for lines in self.alternatives for line in lines)


@dataclass(frozen=True)
class TimedElement:
    """An element of a hypothesis network. The latest middle of its words, in s, assigns it to a segment."""

    middle_s: float
    element: Element


def ctm_entries(lines: Iterable[CtmLine]) -> list[CtmEntry]:
    """An entry for each word."""
    return [CtmEntry(((line,),)) for line in lines]


def read_entries(path: Path) -> list[CtmEntry]:
    """The entries of a ctm. Raises UserError with file and line for a malformed line and for alternatives
    that do not end."""
    found, begun_at = [], 0
    alternatives: list[list[CtmLine]] = [[]]
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.lstrip().startswith(";;"):
            continue
        mark = (line.upper().split() + [""] * 5)[4]
        if mark == "<ALT_BEGIN>":
            begun_at, alternatives = number, [[]]
        elif mark == "<ALT>" and begun_at:
            alternatives.append([])
        elif mark == "<ALT_END>" and begun_at:
            found += [CtmEntry(tuple(map(tuple, alternatives)))] if any(alternatives) else []
            begun_at = 0
        elif begun_at:
            alternatives[-1].append(_line(line, f"{path}:{number}"))
        else:
            found.append(CtmEntry(((_line(line, f"{path}:{number}"),),)))
    if begun_at:
        raise UserError(
            f"{path}:{begun_at}: the alternatives that begin here have no end; add a line 'FILE CHANNEL * * "
            "<ALT_END>'"
        )
    return found


def _line(line: str, place: str) -> CtmLine:
    try:
        found = CtmLine.parse(line)
    except (ValueError, TypeError):
        raise UserError(f"{place}: '{line}' is not {_FORM}; correct it") from None
    if not parentheses_match(found.word):
        raise UserError(f"{place}: the parentheses of '{found.word}' do not match; correct it")
    return found


def timed_elements(entries: Iterable[CtmEntry], rules: RuleSet | None) -> dict[Side, list[TimedElement]]:
    """{side: elements in order of their begins}, after the rules of a glm. Without rules, words stay."""
    sides: dict[Side, list[CtmEntry]] = {}
    for entry in entries:
        sides.setdefault((entry.first.file.lower(), entry.first.channel.lower()), []).append(entry)
    known: dict[str, list[list[str]]] = {}
    return {
        side: [
            element
            for entry in sorted(mine, key=lambda entry: entry.first.begin_s)
            for element in _elements(entry, rules, known)
        ]
        for side, mine in sides.items()
    }


def _elements(
    entry: CtmEntry, rules: RuleSet | None, known: dict[str, list[list[str]]]
) -> list[TimedElement]:
    alternatives = [
        [item for line in lines for item in _elements_of_word(line, rules, known)]
        for lines in entry.alternatives
    ]
    if len(alternatives) == 1:
        return alternatives[0]
    latest = max((item.middle_s for items in alternatives for item in items), default=0.0)
    return [TimedElement(latest, [[item.element for item in items] or ["@"] for items in alternatives])]


def _elements_of_word(
    line: CtmLine, rules: RuleSet | None, known: dict[str, list[list[str]]]
) -> Iterator[TimedElement]:
    """The result of the rules for a word: an element for each word, or one element with alternatives. `known`
    is the cache of results."""
    if rules is None:
        yield TimedElement(line.begin_s + line.duration_s / 2, line.word.lower())
        return
    alternatives = known.get(line.word)
    if alternatives is None:
        filtered = filtered_word(line.word, rules)
        alternatives = known[line.word] = [[word.lower() for word in words] for words in filtered]
    middles = [_middles(line, len(words)) for words in alternatives]
    if len(alternatives) == 1:
        yield from map(TimedElement, middles[0], alternatives[0])
    elif alternatives:
        yield TimedElement(max(map(max, middles)), alternatives)


def _middles(line: CtmLine, num: int) -> list[float]:
    """The middles of `num` words that share the time of a line, rounded as by csrfilt."""
    each = line.duration_s / num
    return [round(line.begin_s + i * each, _DECIMALS) + round(each, _DECIMALS) / 2 for i in range(num)]
