"""Read transcripts of Fisher English: one file per call, one line per utterance.

    # fe_03_00001.sph
    # Transcribed at the LDC

    7.92 9.52 B: hi my name is somebody

Times are seconds; A is channel 1, B is channel 2; blank lines and lines that begin with `#` are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.system_errors import SystemRefusal
from pyasr.corpora.conversations import SkippedItems, hundredths
from pyasr.io.content import read_content

NO_UTF8, OTHER_FORM = "text that is not UTF-8", "a line that is not 'BEGIN END A: WORDS'"
UNREADABLE = "a transcript that cannot be read"
OTHER_CALL = "a transcript whose first line names another call"
_LINE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s+([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s+([AB])\s*:(.*)", re.DOTALL
)
_CALL = re.compile(rb"\s*#\s*(fe_03_[0-9]{5})", re.IGNORECASE)
_WRONG_BEGINS = {("fe_03_11487", 31.09): 231.09}  # ends at 234.06


@dataclass(frozen=True)
class TranscriptLine:
    """The words of one side from `begin_s` to `end_s` (seconds), as in the transcript."""

    call: str
    channel: str
    begin_s: float
    end_s: float
    text: str

    @property
    def side(self) -> str:
        """The recording: `fe_03_00001-A`."""
        return f"{self.call}-{self.channel}"

    @property
    def name(self) -> str:
        """`fe_03_00001-A-000253-000481`: side of the call, begin and end in 10 ms."""
        return f"{self.side}-{hundredths(self.begin_s):06d}-{hundredths(self.end_s):06d}"


def read_transcript(call: str, path: Path, skipped: SkippedItems) -> list[TranscriptLine]:
    """The lines of a transcript in file order. `skipped` gets unreadable lines or an unreadable file."""
    try:
        content = read_content(path)
    except SystemRefusal:
        raise
    except UserError:
        skipped.add(UNREADABLE, str(path))
        return []
    if (named := _CALL.match(content)) and named[1].decode().lower() != call:
        skipped.add(OTHER_CALL, str(path))
        return []
    lines = (
        _line(call, raw, f"{path}:{number}", skipped) for number, raw in enumerate(content.splitlines(), 1)
    )
    return [line for line in lines if line]


def _line(call: str, raw: bytes, where: str, skipped: SkippedItems) -> TranscriptLine | None:
    """One line; None for blank lines, comments and skipped lines."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        skipped.add(NO_UTF8, where)
        return None
    if not text.strip() or text.lstrip().startswith("#"):
        return None
    match = _LINE.fullmatch(text)
    if not match:
        skipped.add(OTHER_FORM, where)
        return None
    return _repaired(
        TranscriptLine(call, match[3], float(match[1]), float(match[2]), " ".join(match[4].split()))
    )


def _repaired(line: TranscriptLine) -> TranscriptLine:
    """The line, with a known error of the release in its times corrected."""
    begin_s = _WRONG_BEGINS.get((line.call, line.begin_s), line.begin_s)
    return replace(line, begin_s=begin_s) if begin_s < line.end_s else line
