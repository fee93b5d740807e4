"""Transcripts with times in NIST's stm format: the references for scoring evaluation sets and data
directories.

    ;; LABEL "en-F" "English women" "..."                  other lines that start with ;; are comments
    sw_4390 A sw_4390_A 1.10 2.83 <O,en,F,en-F>  WELL (%HESITATION) I { DON'T / DO NOT } (TH-) THINK

The columns are FILE CHANNEL SPEAKER BEGIN END <LABELS> TEXT. `(WORD)` is optional, `{ A / B }` are
alternatives, `@` means no word. The text IGNORE_TIME_SEGMENT_IN_SCORING excludes a segment. Two errors of
published files are repaired: `((` is read as `(`, and <B_ASIDE> and <E_ASIDE> are removed. Lines of the
speaker `inter_segment_gap` are skipped.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
COMMENT = ";;"
_GAP = "inter_segment_gap"
_FORM = "'FILE CHANNEL SPEAKER BEGIN END <LABELS> TEXT'"
_ASIDE = re.compile(r"<[BE]_ASIDE>", re.IGNORECASE)
_EMPTY_ALTERNATIVES = re.compile(r"\{[\s/]*\}")
_PARENTHESES = re.compile(r"\([^()]*\)")


@dataclass(frozen=True)
class StmSegment:
    """A line of an stm: what a speaker said on a channel of a file. `begin` and `end` are in seconds, as they
    are written; `labels` may be empty; `line` is the number of the line."""

    file: str
    channel: str
    speaker: str
    begin: str
    end: str
    labels: tuple[str, ...]
    text: str
    line: int = 0

    @property
    def begin_s(self) -> float:
        """Seconds from the begin of the recording."""
        return float(self.begin)

    @property
    def end_s(self) -> float:
        """Seconds from the begin of the recording."""
        return float(self.end)

    @property
    def is_ignored(self) -> bool:
        """Whether scoring ignores the segment."""
        return IGNORED in self.text.upper()

    @property
    def side(self) -> tuple[str, str]:
        """(file, channel) in lower case, as sclite compares them."""
        return self.file.lower(), self.channel.lower()

    @property
    def described(self) -> str:
        """The line without times and text, which patterns of subsets match."""
        return f"{self.file} {self.channel} {self.speaker} <{','.join(self.labels)}>"

    def __str__(self) -> str:
        labels = [f"<{','.join(self.labels)}>"] if self.labels else []
        return (
            f"{' '.join([self.file, self.channel, self.speaker, self.begin, self.end, *labels])}  {self.text}"
        ).rstrip()


@dataclass(frozen=True)
class Stm:
    """Segments of an stm sorted by file, channel and begin; `identity` is its name and digest."""

    path: Path
    segments: list[StmSegment]
    identity: str


def read_stm(path: Path) -> Stm:
    """The segments of an stm. Repairs and overlapping segments are logged.

    Raises UserError as `parse_stm`, and for a file without segments.
    """
    lines, repairs = read_lines(path), Counter[str]()
    segments = sorted(parse_stm(lines, path, repairs), key=lambda segment: (segment.side, segment.begin_s))
    if not segments:
        raise no_segments(path)
    log_repairs(path, repairs)
    _log_overlaps(path, segments)
    return Stm(path, segments, _identity(path, lines))


def parse_stm(lines: list[str], path: Path, repairs: Counter[str]) -> list[StmSegment]:
    """The segments in the order of the lines. Repairs are counted in `repairs`, {repair: number}.

    Raises UserError with `path` and line for a malformed line, for times that are not numbers or run
    backwards, and for parentheses or braces that do not match.
    """
    found = [
        _segment(line, number, path, repairs)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith(COMMENT)
    ]
    return [segment for segment in found if segment]


def no_segments(*paths: Path) -> UserError:
    """The error for files without segments."""
    return UserError(f"{', '.join(map(str, paths))}: no segments; a line is {_FORM}")


def log_repairs(name: object, repairs: Counter[str]) -> None:
    """Log a line for each repair of an stm, beginning with the `name` of the file."""
    for what, num in (+repairs).items():
        log.info(f"{name}: {what} ({num} times)")


def parentheses_match(text: str) -> bool:
    """Whether all parentheses are in pairs that are not nested."""
    return not set("()") & set(_PARENTHESES.sub("", text))


def _segment(line: str, number: int, path: Path, repairs: Counter[str]) -> StmSegment | None:
    """The segment of a line; None for a gap between segments."""
    place, fields = f"{path}:{number}", _ASIDE.sub(" ", line).split(maxsplit=5)
    if len(fields) < 5:
        raise UserError(f"{place}: '{line.strip()}' is not {_FORM}; correct it")
    file, channel, speaker, begin, end, *rest = fields
    if speaker.lower() == _GAP:
        repairs[f"lines of {_GAP} skipped"] += 1
        return None
    check_times(begin, end, place)
    labels, text = _labels_and_text("".join(rest), place)
    repairs["<B_ASIDE> and <E_ASIDE> removed"] += len(_ASIDE.findall(line))
    repairs["'((' read as '('"] += text.count("((")
    return StmSegment(
        file, channel, speaker, begin, end, labels, _checked(text.replace("((", "("), place), number
    )


def _labels_and_text(rest: str, place: str) -> tuple[tuple[str, ...], str]:
    if not rest.startswith("<"):
        return (), " ".join(rest.split())
    labels, closed, text = rest.partition(">")
    if " " in labels or not closed:
        raise UserError(f"{place}: '{rest.split()[0]}' is not '<LABEL,LABEL,...>'; correct it")
    return tuple(labels[1:].split(",")), " ".join(text.split())


def check_times(begin: str, end: str, place: str) -> None:
    """Raise UserError, beginning with `place`, for segment times that are not seconds or run backwards."""
    try:
        begin_s, end_s = float(begin), float(end)
        if not (0 <= begin_s < math.inf and 0 <= end_s < math.inf):
            raise ValueError
    except ValueError:
        raise UserError(f"{place}: '{begin}' and '{end}' are not times in seconds; correct them") from None
    if end_s < begin_s:
        raise UserError(
            f"{place}: the segment ends at {end} s, before it begins at {begin} s; correct its times"
        )


def _checked(text: str, place: str) -> str:
    """`text`. Raises UserError if its parentheses or braces do not match."""
    if not parentheses_match(text):
        raise UserError(f"{place}: the parentheses of '{text}' do not match; an optional word is '(WORD)'")
    depth = 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            break
    if depth or _EMPTY_ALTERNATIVES.search(text):
        raise UserError(
            f"{place}: the braces of '{text}' do not match or are empty; alternatives are '{{ A / B / @ }}'"
        )
    return text


def _log_overlaps(path: Path, segments: list[StmSegment]) -> None:
    overlapping = [
        segment.line
        for before, segment in pairwise(segments)
        if before.side == segment.side and segment.begin_s < before.end_s
    ]
    if overlapping:
        log.info(
            f"{path}: {len(overlapping)} segment(s) begin before the end of the previous segment of the same "
            f"channel, the first in line {overlapping[0]}"
        )


def _identity(path: Path, lines: list[str]) -> str:
    """The digest of the content, after the name of the file unless that is just `stm`."""
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    name = path.resolve().name
    return digest if name == "stm" else f"{name}@{digest}"
