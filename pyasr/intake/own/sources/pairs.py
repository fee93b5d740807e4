"""Pairs of an audio file and a transcript with the same name (.txt, .lab or Praat's TextGrid), in one folder
or in parallel trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.intake.own.reading.audio_files import check_any, recording_of, stem_of
from pyasr.intake.own.reading.own_corpus import Corpus, Faults, OwnUtterance, ReadingOptions, named
from pyasr.intake.own.reading.text_files import text_in
from pyasr.intake.own.reading.textgrid import read_textgrid
from pyasr.intake.own.reading.tiers import spoken
from pyasr.intake.own.sources.kinds import Kind, Places, register

# if an audio file has several transcripts, the first of these is used
_SUFFIXES = (".textgrid", ".lab", ".txt")
_HTK_LINE = re.compile(r"\d+\s+\d+\s+(\S+)(\s+.*)?")
_NO_TRANSCRIPT = {
    "readme",
    "license",
    "licence",
    "copying",
    "changelog",
    "about",
    "notes",
    "speakers",
    "speaker-info",
}


@dataclass(frozen=True)
class _Found:
    """{audio file: its transcript}, and transcripts without audio."""

    pairs: dict[Path, Path]
    alone: list[Path]


def _match(places: Places) -> _Found:
    found = _Found({}, [])
    transcripts = [path for suffix in _SUFFIXES for path in places.below if path.suffix.lower() == suffix]
    repeats = len({path.name.casefold() for path in transcripts}) < len(transcripts)
    for path in transcripts:
        name = str(path.with_suffix(""))
        # the second as in VCTK
        if audio := places.index.find(name, repeats) or places.index.find(f"{name}_mic1", repeats):
            found.pairs.setdefault(audio, path)
        elif path.stem.lower() not in _NO_TRANSCRIPT:
            found.alone.append(path)
    return found


def read(places: Places, options: ReadingOptions) -> Corpus:
    """The utterances of all pairs. A transcript without audio is a fault; audio without one is noted."""
    check_any(places.below, places.folders[0])
    found, faults = _match(places), Faults(options.skip_bad)
    folders = {path.parent for path in found.pairs.values()}
    for path in (path for path in found.alone if path.parent in folders):
        faults.add(
            "transcripts without an audio file of the same name",
            "add the audio, or remove the transcripts",
            path,
        )
    corpus = Corpus(
        f"pairs of audio and {' '.join(sorted({path.suffix for path in found.pairs.values()}))} files"
    )
    for audio, transcript in sorted(found.pairs.items()):
        entry = str(audio.absolute())
        if recording := recording_of(entry, audio, faults):
            corpus.recordings[entry] = recording
            corpus.utterances += _utterances(audio, transcript, entry, options)
    corpus.notes += faults.settle(places)
    if without := sorted(set(places.audio) - set(found.pairs)):
        names = named([path.name for path in without])
        corpus.notes.append(f"left out: audio files without a transcript of the same name: {names}")
    return corpus


def _utterances(audio: Path, transcript: Path, entry: str, options: ReadingOptions) -> Iterator[OwnUtterance]:
    name = stem_of(audio.name)
    if transcript.suffix.lower() != ".textgrid":
        yield OwnUtterance(name, entry, _plain_text(transcript))
        return
    for speaker, interval in spoken(read_textgrid(transcript), options.tiers, transcript):
        yield OwnUtterance(name, entry, interval.text, speaker, interval.begin_s, interval.end_s)


def _plain_text(path: Path) -> str:
    """The words of a transcript: all lines, or the labels of HTK's lines 'BEGIN END LABEL'."""
    lines = [line.strip() for line in text_in(path).split("\n") if line.strip()]
    labels = [_HTK_LINE.fullmatch(line) for line in lines] if path.suffix.lower() == ".lab" else []
    return (
        " ".join(match[1] for match in labels if match)
        if lines and labels and all(labels)
        else " ".join(lines)
    )


def _fits(places: Places) -> bool:
    return bool(places.folders) and bool(_match(places).pairs)


register(Kind("pairs of audio and .txt, .lab or TextGrid files", 40, _fits, read))
