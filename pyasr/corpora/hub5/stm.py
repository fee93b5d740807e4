"""NIST's references of telephone speech (stm) and lists of their segments (pem), as data preparation reads them.

    ;; LABEL "en-F" "" ""
    en_4156 A en_4156_A 357.64 359.64 <O,en,F,en-F>  WELL (%HESITATION) I { DON'T / DO NOT } (TH-) THINK        stm
    fsh_60262 1 inter_segment_gap 1.09 1.10 <O,FI,M,STANDARD>
    en_4156 A unknown_speaker 301.85 302.48                                                                    pem
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.conversations import hundredths
from pyasr.corpora.texts import read_lines

CHANNELS = {"A": "A", "B": "B", "1": "A", "2": "B"}
_GAP, _IGNORED = "inter_segment_gap", "IGNORE_TIME_SEGMENT_IN_SCORING"
_COMMENT = ";;"
_ASIDE = re.compile(r"<[BE]_ASIDE>\s*", re.IGNORECASE)
_PARENTHESES = str.maketrans("()", "  ")
_ALTERNATIVES = re.compile(r"\{([^{}/]*)(?:/[^{}]*)*\}")


@dataclass(frozen=True)
class StmSegment:
    """A line of an stm: `begin` and `end` in seconds, as they are written; `channel` is A or B; `label` may be empty."""

    file: str
    channel: str
    speaker: str
    begin: str
    end: str
    label: str
    text: str

    @property
    def is_ignored(self) -> bool:
        """Whether scoring passes over the time of the segment."""
        return _IGNORED in self.text.upper()

    @property
    def span(self) -> tuple[str, int, int]:
        """(side, begin and end in units of 10 ms): `en_4156-A`, 35764, 35964."""
        return f"{self.file}-{self.channel}", hundredths(float(self.begin)), hundredths(float(self.end))

    def __str__(self) -> str:
        fields = [self.file, self.channel, self.speaker, self.begin, self.end, *filter(None, [self.label])]
        return f"{' '.join(fields)}  {self.text}".rstrip()


@dataclass(frozen=True)
class Stm:
    """`comments` (with the categories and labels) and segments of one or several files, in their order."""

    comments: list[str]
    segments: list[StmSegment]

    @property
    def lines(self) -> list[str]:
        """The lines of the repaired stm."""
        return [*self.comments, *map(str, self.segments)]


def read_stm(paths: list[Path]) -> Stm:
    """The segments of stm files, repaired: `((` is `(`, marks of asides are removed, channels 1 and 2 are A and B, names of files are in
    lower case; lines that only fill the time between segments are left out.

    Raises UserError with file and line for anything that is not a segment, for times that run backwards, and where no segment is.
    """
    comments: dict[str, None] = {}
    segments = []
    for path in paths:
        for number, line in enumerate(read_lines(path), 1):
            if line.startswith(_COMMENT):
                comments[line] = None
            elif line.strip() and _GAP not in line.split()[:3]:
                segments.append(_segment(line, f"{path}:{number}"))
    if not segments:
        raise UserError(f"{', '.join(map(str, paths))}: no segments; expected lines 'FILE CHANNEL SPEAKER BEGIN END <LABEL> WORDS'")
    return Stm(list(comments), segments)


def _segment(line: str, where: str) -> StmSegment:
    file, channel, speaker, begin, end, rest = (*line.split(None, 5), "", "", "", "", "")[:6]
    _check(channel, begin, end, f"{where}: '{line.strip()}'", "FILE CHANNEL SPEAKER BEGIN END <LABEL> WORDS")
    label, text = re.fullmatch(r"(<[^>\s]*,[^>\s]*>)?\s*(.*)", rest.strip()).groups("")
    return StmSegment(file.lower(), CHANNELS[channel.upper()], speaker, begin, end, label, repaired(text))


def repaired(text: str) -> str:
    """The words of an stm without its known mistakes, which scoring cannot read: `((TH-)`, `<B_ASIDE>`, `<E_ASIDE>`."""
    return _ASIDE.sub("", text).replace("((", "(").strip()


def read_pem(path: Path) -> list[tuple[str, float, float]]:
    """(side, begin, end) of each segment, `en_4156-A`, seconds. Raises UserError with file and line for anything else."""
    segments = []
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith(_COMMENT) or not line.strip():
            continue
        file, channel, _, begin, end = (*line.split(), "", "", "", "", "")[:5]
        channel = channel.rstrip(":")
        _check(channel, begin, end, f"{path}:{number}: '{line.strip()}'", "FILE CHANNEL SPEAKER BEGIN END")
        segments.append((f"{file.lower()}-{CHANNELS[channel.upper()]}", float(begin), float(end)))
    return segments


def _check(channel: str, begin: str, end: str, where: str, form: str) -> None:
    """Raise UserError unless channel and times of a line are as they should be."""
    try:
        times = float(begin), float(end)
        is_form = channel.upper() in CHANNELS and all(map(math.isfinite, times))
    except ValueError:
        is_form = False
    if not is_form:
        raise UserError(f"{where} is not '{form}' with channel A, B, 1 or 2 and times in seconds; correct the line")
    if not 0 <= times[0] <= times[1]:
        raise UserError(f"{where}: its end {end} is before its begin {begin}; correct the line, or remove it")


def plain_words(text: str) -> str:
    """The words of a reference in lower case: the first of alternatives, `@` is nothing, optional words without their parentheses."""
    words = _ALTERNATIVES.sub(r" \1 ", text).translate(_PARENTHESES).lower().split()
    return " ".join(word for word in words if word != "@")
