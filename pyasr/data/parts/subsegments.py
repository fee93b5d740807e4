"""Data directories whose utterances are parts of those of another one, named as in Kaldi: UTT-BEGIN-END in
hundredths of a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyasr.base.errors import UserError
from pyasr.data.audio.recordings import duration_s
from pyasr.data.parts.subsets import FEATURE_TABLES, read_all
from pyasr.data.tables.datadir import DataDir, Tables, filtered
from pyasr.io.lazy_tables import Lazy, at_hand
from pyasr.io.tables import Parsed, Table, TableBuilder

_OF_WHOLE_UTTERANCES = ("text", "segments", "utt2dur", *FEATURE_TABLES, "spk2utt")


@dataclass(frozen=True)
class Subsegment:
    """A part of an utterance, with times relative to the begin of the utterance, and its words."""

    begin_s: float
    end_s: float
    words: tuple[str, ...] = ()


def extent_s(data: DataDir, utt: str) -> tuple[float, float]:
    """(begin, end) of an utterance in its recording, in seconds."""
    segment = data.segments.get(utt)
    if segment is None:
        return 0.0, duration_s(data, utt)
    return segment.begin_s, segment.end_s if segment.end_s > 0 else duration_s(data, segment.recording)


def packed(parts: Iterable[tuple[str, list[Subsegment]]]) -> Mapping[str, list[Subsegment]]:
    """{utterance: its parts} for parts without words, in little memory."""
    times = TableBuilder()
    for utt, found in parts:
        times.add(utt, " ".join(f"{float(time)!r}" for part in found for time in (part.begin_s, part.end_s)))
    return Parsed(times.table(), _parts_at)


def _parts_at(times: str) -> list[Subsegment]:
    numbers = map(float, times.split())
    return [Subsegment(begin_s, end_s) for begin_s, end_s in zip(numbers, numbers)]


def subsegmented(data: DataDir, parts: Mapping[str, list[Subsegment]], with_text: bool) -> Tables:
    """The tables of a directory whose utterances are `parts` of the utterances of `data`, without feature
    tables. If `with_text`, an utterance with a single part keeps its name and times.

    Raises UserError if there is no part.
    """
    if not any(parts.values()):
        raise UserError(
            f"{data.path}: no segment found in any of its {len(data.utterances)} utterances; change the "
            "segmentation options"
        )
    tables = {name: table for name, table in read_all(data).items() if name not in _OF_WHOLE_UTTERANCES}
    new = _New(parts, with_text)
    for name in ("utt2spk", "utt2lang", "utt2warp", "utt2uniq"):
        if name in tables:
            tables[name] = new.table(lambda utt, part, is_whole, known: known[utt], tables[name])
    tables["segments"] = new.table(lambda utt, part, is_whole, _: _segment(data, utt, part, is_whole))
    tables["utt2dur"] = new.table(_seconds, data.optional_table("utt2dur"))
    if with_text:
        tables["text"] = new.table(lambda utt, part, *_: " ".join(part.words))
    return filtered(tables, Table.of_keys(new.table(lambda *_: "")).in_order())


class _New:
    """Tables of the new utterances."""

    def __init__(self, parts: Mapping[str, list[Subsegment]], with_text: bool):
        self._parts, self._with_text = parts, with_text

    def table(
        self,
        value: Callable[[str, Subsegment, bool, Mapping[str, str]], object],
        known: Mapping[str, str] = {},
    ) -> Lazy:
        """{new utterance: value(utterance, part, whether it is the whole utterance, the table `known`)}"""
        return Lazy(lambda: self._lines(value, at_hand(known)))

    def _lines(self, value: Callable, known: Mapping[str, str]) -> Iterator[tuple[str, object]]:
        for utt, found in self._parts.items():
            is_whole = self._with_text and len(found) == 1
            yield from ((_name(utt, part, is_whole), value(utt, part, is_whole, known)) for part in found)


def _name(utt: str, part: Subsegment, whole: bool) -> str:
    return utt if whole else f"{utt}-{round(100 * part.begin_s):07d}-{round(100 * part.end_s):07d}"


def _segment(data: DataDir, utt: str, part: Subsegment, is_whole: bool) -> str:
    if is_whole:
        return data.table("segments")[utt] if data.segments else f"{utt} 0 -1"
    begin_s = data.segments[utt].begin_s if data.segments else 0.0
    return f"{data.recording(utt)} {begin_s + part.begin_s:.3f} {begin_s + part.end_s:.3f}"


def _seconds(utt: str, part: Subsegment, is_whole: bool, known: Mapping[str, str]) -> str:
    return known[utt] if is_whole and utt in known else f"{part.end_s - part.begin_s:.3f}"
