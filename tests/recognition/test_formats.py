"""Formats of transcripts."""

from __future__ import annotations

import json
import os
import re

from pyasr.recognition.formats import FORMATS
from pyasr.recognition.transcript import DecodedSegment, Transcript, Word


def transcript(words: list[str], second_s: float = 0.4, file: str = "my talk.wav") -> Transcript:
    spoken = tuple(Word(word, i * second_s, (i + 0.9) * second_s, 0.5) for i, word in enumerate(words))
    return Transcript(
        file,
        "2",
        (DecodedSegment(0.0, len(words) * second_s, spoken), DecodedSegment(len(words) * second_s, 60.0, ())),
    )


def lines(name: str, *arguments, **options) -> list[str]:
    return list(FORMATS[name].lines(transcript(*arguments, **options)))


def test_text_and_ctm_lines():
    assert lines("text", ["a", "b"]) == ["a b"]
    assert lines("ctm", ["a", "b"]) == ["my_talk 2 0.00 0.36 a 0.5000", "my_talk 2 0.40 0.36 b 0.5000"]


def test_json_lines():
    (line,) = lines("json", ["über"])
    found = json.loads(line)
    assert "über" in line and found["segments"][0]["words"] == [
        {"word": "über", "begin": 0.0, "end": 0.36, "confidence": 0.5}
    ]
    assert (found["file"], found["channel"], found["duration"], found["segments"][1]["words"]) == (
        "my talk.wav",
        "2",
        60.0,
        [],
    )


def test_file_names_that_are_not_utf8_are_escaped():
    name = os.fsdecode("über ".encode() + "grüße.wav".encode("latin-1"))
    assert lines("ctm", ["a"], file=name) == [r"über_gr\xfc\xdfe 2 0.00 0.36 a 0.5000"]
    assert json.loads(lines("json", ["a"], file=name)[0])["file"] == r"über gr\xfc\xdfe.wav"


def test_ctm_lines_are_never_comments():
    assert lines("ctm", ["a"], file="talks/;;; talk.wav") == ["__;_talk 2 0.00 0.36 a 0.5000"]
    assert lines("ctm", ["a"], file="a;;b.wav") == ["a;;b 2 0.00 0.36 a 0.5000"]


def test_subtitles_have_readable_lines():
    words = [f"word{i}" for i in range(60)]
    cues = "\n".join(lines("srt", words)).split("\n\n")
    times = []
    for number, cue in enumerate(cues, 1):
        first, clock, *text = cue.rstrip("\n").split("\n")
        assert first == str(number) and 1 <= len(text) <= 2 and max(map(len, text)) <= 42
        begin, end = ([int(part) for part in re.split("[:,]", side)] for side in clock.split(" --> "))
        times += [begin[2] + 60 * begin[1] + begin[3] / 1000, end[2] + 60 * end[1] + end[3] / 1000]
    assert times == sorted(times) and max(end - begin for begin, end in zip(times[::2], times[1::2])) <= 6.0
    assert " ".join(" ".join(cue.rstrip("\n").split("\n")[2:]) for cue in cues).split() == words


def test_subtitles_have_minimum_duration_and_end_at_pauses():
    spoken = (Word("a", 0.0, 0.2, 1.0), Word("b", 1.5, 1.7, 1.0), Word("x" * 50, 3661.0, 3661.5, 1.0))
    found = list(FORMATS["srt"].lines(Transcript("f", "1", (DecodedSegment(0.0, 3662.0, spoken),))))
    assert found[:4] == ["1", "00:00:00,000 --> 00:00:01,000", "a", ""]
    assert (
        found[4:7] == ["2", "00:00:01,500 --> 00:00:02,500", "b"]
        and found[9] == "01:01:01,000 --> 01:01:02,000"
        and found[10] == "x" * 50
    )
