"""Data directories whose utterances are parts of those of another one, with names as Kaldi's: UTT-BEGIN-END in hundredths of seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyasr.base.errors import UserError
from pyasr.data.datadir import DataDir, Tables, filtered
from pyasr.data.recordings import duration_s
from pyasr.data.subsets import FEATURE_TABLES, read_all

_OF_WHOLE_UTTERANCES = ("text", "segments", "utt2dur", *FEATURE_TABLES, "spk2utt")


@dataclass(frozen=True)
class Part:
    """A part of an utterance, from its begin on, and the words said in it."""

    begin_s: float
    end_s: float
    words: tuple[str, ...] = ()


def extent_s(data: DataDir, utt: str) -> tuple[float, float]:
    """(begin, end) of an utterance in its recording, in seconds."""
    segment = data.segments.get(utt)
    if segment is None:
        return 0.0, duration_s(data, utt)
    return segment.begin_s, segment.end_s if segment.end_s > 0 else duration_s(data, segment.recording)


def subsegmented(data: DataDir, parts: Mapping[str, list[Part]], with_text: bool) -> Tables:
    """The tables of a directory whose utterances are `parts` of those of `data`; those of a single part with all words keep their names
    and times.

    Tables of features are left out. Raises UserError where there is no part.
    """
    if not any(parts.values()):
        raise UserError(f"{data.path}: no segment found in any of its {len(data.utterances)} utterances; see the options of this program")
    tables = {name: table for name, table in read_all(data).items() if name not in _OF_WHOLE_UTTERANCES}
    whole = {utt for utt, found in parts.items() if with_text and len(found) == 1}
    new = {_name(utt, part, utt in whole): (utt, part) for utt, found in parts.items() for part in found}
    for name in ("utt2spk", "utt2lang", "utt2warp", "utt2uniq"):
        if name in tables:
            tables[name] = {key: tables[name][utt] for key, (utt, _) in new.items()}
    segments = data.table("segments") if data.segments else {utt: f"{utt} 0 -1" for utt in whole}
    seconds = data.optional_table("utt2dur")
    tables["segments"] = {key: segments[utt] if utt in whole else _segment(data, utt, part) for key, (utt, part) in new.items()}
    tables["utt2dur"] = {key: seconds[utt] if utt in whole & seconds.keys() else f"{part.end_s - part.begin_s:.3f}"
                         for key, (utt, part) in new.items()}
    if with_text:
        tables["text"] = {key: " ".join(part.words) for key, (_, part) in new.items()}
    return filtered(tables, new)


def _name(utt: str, part: Part, whole: bool) -> str:
    return utt if whole else f"{utt}-{round(100 * part.begin_s):07d}-{round(100 * part.end_s):07d}"


def _segment(data: DataDir, utt: str, part: Part) -> str:
    begin_s = data.segments[utt].begin_s if data.segments else 0.0
    return f"{data.recording(utt)} {begin_s + part.begin_s:.3f} {begin_s + part.end_s:.3f}"
