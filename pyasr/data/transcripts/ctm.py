"""Words with times and confidences as lines of NIST's ctm.

FILE CHANNEL BEGIN DURATION WORD CONFIDENCE         seconds from the begin of the recording; confidence from 0
                                                    to 1
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.audio.channels import file_and_channel
from pyasr.data.tables.datadir import DataDir
from pyasr.io.tables import Lines
from pyasr.io.text_tables import read_lines

_MAX_SECONDS = 1e7


@dataclass(frozen=True)
class CtmLine:
    """A recognised word."""

    file: str
    channel: str
    begin_s: float
    duration_s: float
    word: str
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.file} {self.channel} {self.begin_s:.2f} {self.duration_s:.2f} {self.word} "
            f"{self.confidence:.4f}"
        )

    @property
    def end_s(self) -> float:
        """Seconds from the begin of the recording."""
        return self.begin_s + self.duration_s

    @classmethod
    def parse(cls, line: str) -> CtmLine:
        """Parse a line with or without a confidence. Raises ValueError for anything else."""
        file, channel, begin_s, duration_s, word, *confidence = line.split()
        found = cls(file, channel, float(begin_s), float(duration_s), word, *map(float, confidence or ["1"]))
        if not (0 <= found.begin_s < _MAX_SECONDS and 0 <= found.duration_s < _MAX_SECONDS):
            raise ValueError("times are out of bounds")
        return found


def read_ctm(path: Path) -> list[CtmLine]:
    """Words of a ctm, without comments (`;;`). Raises UserError with file and line for a malformed line."""
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        try:
            found.append(CtmLine.parse(line))
        except (ValueError, TypeError):
            raise UserError(
                f"{path}:{number}: '{line}' is not 'FILE CHANNEL BEGIN DURATION WORD [CONFIDENCE]'; correct "
                "it"
            ) from None
    return found


class Recordings:
    """Positions of utterances in files, by `segments` and `reco2file_and_channel` of a data directory, both
    optional."""

    def __init__(self, data: DataDir):
        self.data = data
        self.names = {
            name: place for name in data.reco2file_and_channel if (place := file_and_channel(data, name))
        }

    def locate(self, utterance: str) -> tuple[str, str, float]:
        """(file, channel, begin in seconds). Without tables the file is named as the utterance or recording,
        and the channel is 1."""
        segments = self.data.segments
        if segments and utterance not in segments:
            raise UserError(
                f"{self.data.path}/segments has no utterance '{utterance}'; repair it with "
                "utils/fix_data_dir.py"
            )
        recording = self.data.recording(utterance)
        if self.names and recording not in self.names:
            raise UserError(
                f"{self.data.path}/reco2file_and_channel has no recording '{recording}' of utterance "
                f"'{utterance}'; add a line 'RECORDING FILE CHANNEL'"
            )
        file, channel = self.names.get(recording, (recording, "1"))
        return file, channel, segments[utterance].begin_s if segments else 0.0


def utterance_lines(
    words: Iterable[str],
    times: Iterable[tuple[float, float]],
    confidences: Iterable[float],
    place: tuple[str, str, float],
    frame_shift_s: float,
) -> list[CtmLine]:
    """The words of an utterance at `place` (file, channel, begin in seconds); `times` are their begins and
    ends in frames."""
    file, channel, start_s = place
    seconds = [
        (round(start_s + frame_shift_s * begin, 2), round(start_s + frame_shift_s * end, 2))
        for begin, end in times
    ]
    return [
        CtmLine(file, channel, begin_s, end_s - begin_s, word, confidence)
        for (begin_s, end_s), word, confidence in zip(seconds, words, confidences)
    ]


def sorted_lines(lines: Iterable[CtmLine]) -> list[CtmLine]:
    """The lines sorted by file, channel and time, as sclite requires."""
    return sorted(lines, key=lambda line: (line.file, line.channel, line.begin_s))


def sort_ctm(path: Path) -> None:
    """Sort the lines of a ctm file in the same way. They are in memory as one byte string."""
    lines, sides = Lines(path.read_bytes()), dict[tuple[str, str], int]()
    numbers, begins = array("q"), array("d")
    for file, channel, begin_s in map(place_of, lines):
        numbers.append(sides.setdefault((file, channel), len(sides)))
        begins.append(begin_s)
    rank = np.argsort([sides[side] for side in sorted(sides)])
    order = np.lexsort((np.array(begins, np.float64), rank[np.array(numbers, np.int64)]))
    if (np.diff(order) < 0).any():
        with atomic_write(path) as f:
            f.writelines(f"{lines[number]}\n" for number in order.data)


def place_of(line: str) -> tuple[str, str, float]:
    """(file, channel, begin in seconds) of a line of a ctm, the sort key of lines."""
    file, channel, begin_s, _ = line.split(None, 3)
    return file, channel, float(begin_s)
