"""The transcript of a recording: words with times and confidences, in segments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A recognised word: seconds from the recording's begin, and its posterior probability."""

    word: str
    begin_s: float
    end_s: float
    confidence: float

    def later(self, seconds: float) -> Word:
        """The same word in a recording that began `seconds` earlier."""
        return Word(self.word, self.begin_s + seconds, self.end_s + seconds, self.confidence)


@dataclass(frozen=True)
class DecodedSegment:
    """A separately decoded part of a recording."""

    begin_s: float
    end_s: float
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The words, separated by blanks."""
        return " ".join(word.word for word in self.words)


@dataclass(frozen=True)
class Transcript:
    """The transcript of a channel of a recording; its segments are in order and cover it without gaps."""

    file: str
    channel: str
    segments: tuple[DecodedSegment, ...]

    @property
    def text(self) -> str:
        """All words, separated by blanks."""
        return " ".join(segment.text for segment in self.segments if segment.words)

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of all segments."""
        return tuple(word for segment in self.segments for word in segment.words)

    @property
    def duration_s(self) -> float:
        """Length of the recording in seconds."""
        return self.segments[-1].end_s if self.segments else 0.0
