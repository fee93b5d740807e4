"""Read references (stm) and segment lists (pem) of NIST's evaluation sets of telephone speech, as they are on
the discs.

    en_4156 A en_4156_A 357.64 359.64 <O,en,F,en-F>  WELL (%HESITATION) I { DON'T / DO NOT } (TH-) THINK   stm
    fsh_60262 1 inter_segment_gap 1.09 1.10 <O,FI,M,STANDARD>
    en_4156 A unknown_speaker 301.85 302.48                                                               pem
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.conversations import hundredths
from pyasr.corpora.texts import read_lines
from pyasr.data.transcripts.stm import COMMENT, StmSegment, check_times, log_repairs, no_segments, parse_stm

CHANNELS = {"A": "A", "B": "B", "1": "A", "2": "B"}
_PARENTHESES = str.maketrans("()", "  ")
_ALTERNATIVES = re.compile(r"\{([^{}/]*)(?:/[^{}]*)*\}")


@dataclass(frozen=True)
class References:
    """Comments (with categories and labels) and segments of one or several stm files, in file order."""

    comments: list[str]
    segments: list[StmSegment]

    @property
    def lines(self) -> list[str]:
        """The lines of a single stm with all of them."""
        return [*self.comments, *map(str, self.segments)]


def read_references(paths: list[Path]) -> References:
    """The segments of stm files, repaired (`pyasr.data.transcripts.stm`); channels 1 and 2 are A and B, names
    of files are in lower case.

    Raises UserError as `parse_stm`, for other channels, and if there is no segment.
    """
    comments: dict[str, None] = {}
    segments, repairs = [], Counter[str]()
    for path in paths:
        lines = read_lines(path)
        comments |= dict.fromkeys(line for line in lines if line.startswith(COMMENT))
        segments += [_of_side(segment, path) for segment in parse_stm(lines, path, repairs)]
    if not segments:
        raise no_segments(*paths)
    log_repairs(paths[0] if len(paths) == 1 else f"{len(paths)} stm files", repairs)
    return References(list(comments), segments)


def _of_side(segment: StmSegment, path: Path) -> StmSegment:
    return replace(
        segment, file=segment.file.lower(), channel=_channel(segment.channel, f"{path}:{segment.line}")
    )


def _channel(name: str, place: str) -> str:
    if name.upper() not in CHANNELS:
        raise UserError(f"{place}: channel '{name}' is not A, B, 1 or 2; correct the line")
    return CHANNELS[name.upper()]


def span_of(segment: StmSegment) -> tuple[str, int, int]:
    """(side, begin and end in units of 10 ms): `en_4156-A`, 35764, 35964."""
    return f"{segment.file}-{segment.channel}", hundredths(segment.begin_s), hundredths(segment.end_s)


def read_pem(path: Path) -> list[tuple[str, float, float]]:
    """(side, begin, end) of each segment, `en_4156-A`, seconds. Raises UserError with file and line for
    anything else."""
    segments = []
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith(COMMENT) or not line.strip():
            continue
        place, fields = f"{path}:{number}", line.split()
        if len(fields) < 5:
            raise UserError(f"{place}: '{line.strip()}' is not 'FILE CHANNEL SPEAKER BEGIN END'; correct it")
        file, channel, _, begin, end = fields[:5]
        check_times(begin, end, place)
        segments.append((f"{file.lower()}-{_channel(channel.rstrip(':'), place)}", float(begin), float(end)))
    return segments


def plain_words(text: str) -> str:
    """The words of a reference in lower case: the first of several alternatives, nothing for `@`, optional
    words without parentheses."""
    words = _ALTERNATIVES.sub(r" \1 ", text).translate(_PARENTHESES).lower().split()
    return " ".join(word for word in words if word != "@")
