"""Write transcripts as text, NIST's ctm, JSON and SubRip subtitles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.utf8 import as_utf8
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.recognition.transcript import Transcript, Word

_LINE_LETTERS, _CUE_LINES = 42, 2  # usual limits of broadcasters
_CUE_S, _MIN_CUE_S, _PAUSE_S = 6.0, 1.0, 0.8
_GAP_S = 0.04


@dataclass(frozen=True)
class Format:
    """A format of transcripts: the suffix of files, and a function that returns the lines."""

    suffix: str
    lines: Callable[[Transcript], Iterator[str]]


def name_of(transcript: Transcript) -> str:
    """The recording's name without suffix, as one word."""
    return as_word(Path(transcript.file).stem)


def as_word(stem: str) -> str:
    """The name of a recording as one word of UTF-8."""
    return "_".join(as_utf8(stem).split()) or "recording"


def text_lines(transcript: Transcript) -> Iterator[str]:
    """A line for each segment with words."""
    return (segment.text for segment in transcript.segments if segment.words)


def ctm_lines(transcript: Transcript) -> Iterator[str]:
    """FILE CHANNEL BEGIN DURATION WORD CONFIDENCE."""
    for word in transcript.words:
        begin_s, end_s = round(word.begin_s, 2), round(word.end_s, 2)
        yield str(
            CtmLine(
                _name_in_ctm(transcript),
                transcript.channel,
                begin_s,
                end_s - begin_s,
                word.word,
                word.confidence,
            )
        )


def _name_in_ctm(transcript: Transcript) -> str:
    """The recording's name; avoids a leading `;;`, which would begin a comment."""
    name = name_of(transcript)
    return "__" + name[2:] if name.startswith(";;") else name


def json_lines(transcript: Transcript) -> Iterator[str]:
    """One object, on one line: {file, channel, duration, text, segments: [{begin, end, text, words: [{word,
    begin, end, confidence}]}]}."""
    segments = [
        {
            "begin": round(segment.begin_s, 3),
            "end": round(segment.end_s, 3),
            "text": segment.text,
            "words": [_word_object(word) for word in segment.words],
        }
        for segment in transcript.segments
    ]
    whole = {
        "file": as_utf8(transcript.file),
        "channel": transcript.channel,
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
        "segments": segments,
    }
    yield json.dumps(whole, ensure_ascii=False)


def _word_object(word: Word) -> dict:
    return {
        "word": word.word,
        "begin": round(word.begin_s, 3),
        "end": round(word.end_s, 3),
        "confidence": round(word.confidence, 4),
    }


def srt_lines(transcript: Transcript) -> Iterator[str]:
    """Numbered cues of up to two lines of 42 letters; each ends at a pause, and stays long enough to read."""
    cues = [cue for segment in transcript.segments for cue in _cues(segment.words)]
    for number, cue in enumerate(cues, 1):
        until = cues[number][0].begin_s - _GAP_S if number < len(cues) else float("inf")
        begin_s = cue[0].begin_s
        end_s = max(cue[-1].end_s, min(begin_s + _MIN_CUE_S, until))
        yield str(number)
        yield f"{_clock(begin_s)} --> {_clock(end_s)}"
        yield from _broken([word.word for word in cue])
        yield ""


def _cues(words: tuple[Word, ...]) -> list[list[Word]]:
    """Group words that are shown together."""
    cues: list[list[Word]] = []
    for word in words:
        if cues and _belongs(cues[-1], word):
            cues[-1].append(word)
        else:
            cues.append([word])
    return cues


def _belongs(cue: list[Word], word: Word) -> bool:
    fits = len(_broken([one.word for one in (*cue, word)])) <= _CUE_LINES
    return fits and word.end_s - cue[0].begin_s <= _CUE_S and word.begin_s - cue[-1].end_s < _PAUSE_S


def _broken(words: list[str]) -> list[str]:
    """Lines of at most 42 letters; two lines have about the same length."""
    text = " ".join(words)
    if len(text) <= _LINE_LETTERS:
        return [text]
    splits = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    halves = [pair for pair in splits if max(map(len, pair)) <= _LINE_LETTERS]
    if halves:
        best = min(halves, key=lambda pair: abs(len(pair[0]) - len(pair[1])))
        return list(best)
    return _filled(words)


def _filled(words: list[str]) -> list[str]:
    """Lines filled to the maximum length; a longer word gets its own line."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= _LINE_LETTERS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _clock(seconds: float) -> str:
    milliseconds = round(1000 * max(seconds, 0.0))
    minutes, milliseconds = divmod(milliseconds, 60000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds // 1000:02d},{milliseconds % 1000:03d}"


FORMATS = {
    "text": Format(".txt", text_lines),
    "ctm": Format(".ctm", ctm_lines),
    "json": Format(".json", json_lines),
    "srt": Format(".srt", srt_lines),
}
