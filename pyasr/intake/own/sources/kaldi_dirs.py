"""Kaldi's data directories: train, dev and test, or directories to be split."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import is_command
from pyasr.data.audio.channels import labels_of, pick
from pyasr.data.audio.recordings import known_durations
from pyasr.data.tables.datadir import DataDir
from pyasr.intake.own.reading.audio_files import recording_of
from pyasr.intake.own.reading.own_corpus import (
    Corpus,
    Faults,
    OwnRecording,
    OwnUtterance,
    ReadingOptions,
    named,
    part_of,
)
from pyasr.intake.own.sources.kinds import Kind, Places, register

_PLACE = re.compile(r"(.+)(:\d+)$")
_FIX = "run utils/validate_data_dir.py on the directory, which reports the problems"


def _is_data_dir(path: Path) -> bool:
    return (path / "wav.scp").exists() and (path / "utt2spk").exists()


def data_dirs(places: Places) -> list[Path]:
    """The given data directories, and those directly in given folders; of the latter only train, dev and test
    if train exists."""
    found = []
    for folder in places.folders:
        inner = [folder] if _is_data_dir(folder) else list(filter(_is_data_dir, sorted(folder.iterdir())))
        exact = [path for path in inner if path.name.lower() in ("train", "dev", "valid", "test", "eval")]
        found += exact if any(path.name.lower() == "train" for path in exact) else inner
    return found


def read(places: Places, options: ReadingOptions) -> Corpus:
    """The utterances of all directories. A directory that is given twice, or an utterance that occurs twice,
    is an error."""
    if places.files:
        raise UserError(f"{places.files[0]}: a file among data directories; give only directories")
    paths, faults = data_dirs(places), Faults(options.skip_bad)
    corpus = Corpus(f"Kaldi's data directories ({named([path.name for path in paths])})")
    parts = {path: part_of(path.name) for path in paths}
    has_parts = "train" in parts.values() and set(parts.values()) - {"train", ""}
    for path in paths:
        _read_dir(DataDir(path), corpus, faults, parts[path] if has_parts else "")
    corpus.notes += faults.settle(places)
    return corpus


def _read_dir(data: DataDir, corpus: Corpus, faults: Faults, part: str) -> None:
    if not data.has("text"):
        raise UserError(f"{data.path}: no table 'text'; add the transcripts")
    genders, recordings = data.optional_table("spk2gender"), _recordings(data, faults)
    for name in data.utterances:
        recording, segment = data.recording(name), data.segments.get(name)
        if recording not in data.wav_scp:
            faults.add("utterances without a line of wav.scp", _FIX, f"{name} of {data.path}")
            continue
        if name not in data.text:
            faults.add("utterances without a line of text", _FIX, f"{name} of {data.path}")
            continue
        if recording not in recordings:
            continue
        key, audio = recordings[recording]
        corpus.recordings[key] = audio
        speaker = data.utt2spk[name]
        begin, end = (
            (segment.begin_s, segment.end_s if segment.end_s > 0 else audio.seconds)
            if segment
            else (None, None)
        )
        corpus.utterances.append(
            OwnUtterance(name, key, data.text[name], speaker, begin, end, part, genders.get(speaker, ""))
        )


def _recordings(data: DataDir, faults: Faults) -> dict[str, tuple[str, OwnRecording]]:
    """{name in the directory: (name that is unique among all directories, the recording)}"""
    known = known_durations(data)
    sides, found = data.reco2file_and_channel, {}
    labels = labels_of(sides)
    for name in dict.fromkeys(map(data.recording, data.utterances)):
        if name not in data.wav_scp:
            continue
        entry = _absolute(data.wav_scp[name])
        if recording := recording_of(entry, f"{name} of {data.path}", faults, known.get(name)):
            side = sides.get(name, "")
            if _has_channel(recording, labels.get(name, ""), f"{name} of {data.path}", faults):
                found[name] = (f"{entry}#{side}", replace(recording, side=side))
    return _with_rates(found, faults)


def _has_channel(recording: OwnRecording, label: str, where: str, faults: Faults) -> bool:
    """Whether a file has the channel that reco2file_and_channel names, if it names one."""
    if not label or recording.channels < 2:
        return True
    try:
        pick(recording.channels, label, where)
    except UserError:
        faults.add(
            "channels of reco2file_and_channel that their files lack",
            "correct the table (A, B, ... or 1, 2, ...)",
            f"{label} of {where}, whose file has {recording.channels}",
        )
        return False
    return True


def _with_rates(
    found: dict[str, tuple[str, OwnRecording]], faults: Faults
) -> dict[str, tuple[str, OwnRecording]]:
    """Commands whose recordings have known lengths were not run: run the first one to get the sampling rate
    of all."""
    unknown = [name for name, (_, recording) in found.items() if not recording.rate]
    first = recording_of(found[unknown[0]][1].entry, unknown[0], faults) if unknown else None
    rated = {name: (found[name][0], replace(found[name][1], rate=first.rate)) for name in unknown if first}
    return found | rated


def _absolute(entry: str) -> str:
    """An entry that does not depend on the current directory: FILE, FILE:OFFSET; commands are unchanged."""
    if is_command(entry):
        return entry
    place = None if os.path.exists(entry) else _PLACE.fullmatch(entry)
    return os.path.abspath(place[1]) + place[2] if place else os.path.abspath(entry)


register(Kind("Kaldi's data directories", 10, lambda places: bool(data_dirs(places)), read))
