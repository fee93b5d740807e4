"""The data directory: tables of utterances, their speakers, words, audio and features.

    data = DataDir("data/train")
    data.utterances[:3], data.utt2spk["joe-001"], data.durations["joe-001"]

A table is read at its first use. A DataDir does not check that its tables agree;
`pyasr.data.checks.validation` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from operator import eq
from pathlib import Path
from typing import TypeVar

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import admit_table, is_command
from pyasr.base.files.table_paths import placed, root_of
from pyasr.data.tables import distortion
from pyasr.data.tables.dividing import divided, divided_by_speakers
from pyasr.io.keys import Groups, Keys, Numbers, distinct
from pyasr.io.lazy_tables import Lazy, at_hand, having
from pyasr.io.tables import Parsed, Table, pairs_of_file
from pyasr.io.text_tables import grouped, invert, number_table, utt2spk_table, write_table

UTTERANCE_TABLES = (
    "text",
    "segments",
    "utt2spk",
    "feats.scp",
    "utt2dur",
    "utt2num_frames",
    "utt2lang",
    "utt2uniq",
    "utt2warp",
    "vad.scp",
)
SPEAKER_TABLES = ("spk2utt", "cmvn.scp", "spk2gender", "spk2warp")
SPEED, VOLUME, DISTORTION = "reco2speed", "reco2volume", "reco2distortion"
AUDIO_CHANGES = (SPEED, VOLUME, DISTORTION)
FILE_AND_CHANNEL = "reco2file_and_channel"
RECORDING_TABLES = ("wav.scp", "reco2dur", FILE_AND_CHANNEL, *AUDIO_CHANGES)
TABLES = UTTERANCE_TABLES + SPEAKER_TABLES + RECORDING_TABLES
MIN_SPEED, MAX_SPEED = 0.25, 4.0
FIX = "utils/fix_data_dir.py"
TO_THE_END = -1.0
T = TypeVar("T")
Tables = dict[str, Mapping[str, str]]  # {file name: table}


def default_value(table: str, key: str) -> str | None:
    """The default value of a missing line of a table; None if the table has no default."""
    return {SPEED: "1", VOLUME: "1", DISTORTION: distortion.NONE, "utt2uniq": key}.get(table)


def completed(name: str, table: Mapping[str, str], keys: Iterable[str]) -> Lazy:
    """The table `name`, which has default values, with a line for each of `keys`."""
    return Lazy(lambda: _completed(name, at_hand(table), keys))


def _completed(name: str, table: Mapping[str, str], keys: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    return ((key, table.get(key) or default_value(name, key)) for key in keys)


def filtered(tables: Tables, kept: Container[str]) -> Tables:
    """The lines of each table that belong to the utterances `kept`; if segments exist, each of these
    utterances has a line there."""
    speakers, _ = distinct(speaker for utt, speaker in tables["utt2spk"].items() if utt in kept)
    recordings = kept
    if segments := tables.get("segments"):
        recordings, _ = distinct(value.split()[0] for utt, value in segments.items() if utt in kept)
    wanted = (
        dict.fromkeys(UTTERANCE_TABLES, kept)
        | dict.fromkeys(SPEAKER_TABLES, speakers)
        | dict.fromkeys(RECORDING_TABLES, recordings)
    )
    return {name: having(table, wanted[name]) for name, table in tables.items()}


@dataclass(frozen=True)
class Segment:
    """The part of a recording that is an utterance; an end of -1 is that of the recording, as in Kaldi."""

    recording: str
    begin_s: float
    end_s: float

    @classmethod
    def parse(cls, value: str) -> Segment:
        """Parse 'RECORDING BEGIN END'. Raises ValueError for anything else."""
        recording, begin, end = value.split()
        begin_s, end_s = float(begin), float(end)
        if not (0 <= begin_s < end_s < np.inf or begin_s >= 0 and end_s == TO_THE_END):
            raise ValueError("invalid times")
        return cls(recording, begin_s, end_s)


class DataDir:
    """A data directory; every property is one table as a Mapping, which takes little more memory than its
    file.

    tables  directory of tables that have the lines of some utterances only; tables that it lacks are read
            from `path`

    Raises UserError if a table cannot be read.
    """

    def __init__(self, path: Path, tables: Path | None = None):
        self.path, self._tables = Path(path), Path(tables or path)
        if not self.path.is_dir():
            raise UserError(f"{self.path}: no such data directory")

    def file(self, name: str) -> Path:
        """The file from which the table `name` is read."""
        return found if (found := self._tables / name).exists() else self.path / name

    def has(self, name: str) -> bool:
        """Whether the table `name` exists."""
        return (self.path / name).exists()

    def table(self, name: str) -> Mapping[str, str]:
        """The table `name` as {key: rest of the line}; paths of scp tables are valid from the current
        directory."""
        return self._segment_lines if name == "segments" else self._read(name)

    def _read(self, name: str) -> Mapping[str, str]:
        table = Table.read(self.file(name))
        root = self._root(name, table.values())
        return table if root == Path() else Parsed(table, partial(placed, root))

    def pairs(self, name: str) -> Iterator[tuple[str, str]]:
        """The (key, value) pairs of `table(name)`, some thousand of them in memory at a time; `table` refuses
        what is wrong with them."""
        root = self._root(name, (value for _, value in pairs_of_file(self.file(name))))
        pairs = pairs_of_file(self.file(name))
        return pairs if root == Path() else ((key, placed(root, value)) for key, value in pairs)

    def _root(self, name: str, entries: Iterable[str]) -> Path:
        """The directory that relative paths in the table `name` begin in."""
        return root_of(self.file(name), entries) if name.endswith(".scp") else Path()

    def optional_table(self, name: str) -> Mapping[str, str]:
        """The table `name`; empty if it does not exist."""
        return self.table(name) if self.has(name) else {}

    @cached_property
    def utt2spk(self) -> Table:
        """{utterance: speaker}"""
        path = self.file("utt2spk")
        return utt2spk_table(path) if path.parent == self.path else Table.read(path)

    @cached_property
    def spk2utt(self) -> Groups:
        """{speaker: utterances}, computed from utt2spk, so that the two agree."""
        return grouped(self.utt2spk)

    @cached_property
    def utterances(self) -> Keys:
        """All utterances of utt2spk, in C order."""
        return Keys(self.utt2spk)

    @cached_property
    def text(self) -> Mapping[str, str]:
        """{utterance: words separated by blanks}"""
        return self.table("text")

    @cached_property
    def wav_scp(self) -> Mapping[str, str]:
        """{recording: entry for `pyasr.data.audio.audio_reading.read_audio`}. Raises UserError for commands
        if `pyasr.base.files.pipes` refuses them."""
        table = self.table("wav.scp")
        admit_table(table, self.path / "wav.scp")
        return table

    def check_commands(self) -> None:
        """Raise UserError if wav.scp or reco2distortion has refused commands; call it before any work."""
        self.wav_scp
        commands = {
            name: next(filter(is_command, found.sources), "") for name, found in self.reco2distortion.items()
        }
        admit_table(commands, self.path / DISTORTION)

    @cached_property
    def reco2file_and_channel(self) -> Mapping[str, str]:
        """{recording: "FILE CHANNEL"}; empty without such a table. `pyasr.data.audio.channels` parses the
        lines."""
        return self.optional_table(FILE_AND_CHANNEL)

    @cached_property
    def reco2speed(self) -> Mapping[str, str]:
        """{recording: playback speed, 1 is the original speed}; empty without such a table."""
        return self.optional_table(SPEED)

    @cached_property
    def reco2volume(self) -> Mapping[str, str]:
        """{recording: factor on its samples}; empty without such a table."""
        return self.optional_table(VOLUME)

    @cached_property
    def reco2distortion(self) -> Mapping[str, distortion.Distortion]:
        """{recording: room and noises}; empty without such a table."""
        return distortion.parse_table(self.optional_table(DISTORTION), self.path / DISTORTION)

    @cached_property
    def utt2num_frames(self) -> Mapping[str, int]:
        """{utterance: number of frames}"""
        return number_table(self.file("utt2num_frames"), int)

    @cached_property
    def utt2dur(self) -> Mapping[str, float]:
        """{utterance: seconds}"""
        return number_table(self.file("utt2dur"))

    @cached_property
    def reco2dur(self) -> Mapping[str, float]:
        """{recording: seconds}"""
        return number_table(self.file("reco2dur"))

    @cached_property
    def _segment_lines(self) -> Mapping[str, str]:
        return self._read("segments")

    @cached_property
    def segments(self) -> Mapping[str, Segment]:
        """{utterance: segment}; empty if every recording is one utterance. Raises UserError for a line that
        is not 'UTTERANCE RECORDING BEGIN END'."""
        table = self.optional_table("segments")
        for key, value in table.items():
            try:
                Segment.parse(value)
            except ValueError:
                raise UserError(
                    f"{self.path}/segments: '{key} {value}' is not 'UTTERANCE RECORDING BEGIN END' with "
                    "times in seconds, END after BEGIN or -1 (end of the recording); correct the line, or "
                    f"run {FIX} {self.path}"
                ) from None
        return Parsed(table, Segment.parse)

    @cached_property
    def durations(self) -> Numbers[float]:
        """The length of every utterance: seconds, or frames, or 1 if nothing is known."""
        # and its copy
        counted = [
            path
            for path in (self.path / "feats/utt2num_frames", self.path / "utt2num_frames")
            if path.exists()
        ]
        if self.has("utt2dur") or not counted:
            return self.audio_durations
        return self._for_all(number_table(counted[0], int), float)

    @cached_property
    def audio_durations(self) -> Numbers[float]:
        """The length of every utterance, independent of features: seconds, or 1 if nothing is known."""
        if self.has("utt2dur"):
            return self._for_all(number_table(self.file("utt2dur")), float)
        return self._for_all(
            self.segments, lambda part: part.end_s - part.begin_s if part.end_s > part.begin_s else math.nan
        )

    def _for_all(self, known: Mapping[str, T], length: Callable[[T], float]) -> Numbers[float]:
        """The `length` of every utterance; the mean of all lengths for utterances that `known` lacks or whose
        length is NaN."""
        lengths = found = np.fromiter(map(length, known.values()), np.float64)
        if len(known) != len(self.utterances) or not all(map(eq, known, self.utterances)):
            found = np.fromiter(
                (length(known[utt]) if utt in known else math.nan for utt in self.utterances), np.float64
            )
        lengths = lengths[~np.isnan(lengths)]
        missing = float(np.mean(lengths)) if len(lengths) else 1.0
        return Numbers(self.utterances, np.where(np.isnan(found), missing, found))

    def recording(self, utterance: str) -> str:
        """The recording of an utterance, a key of wav.scp. Raises UserError if `segments` exists but lacks
        the utterance."""
        if not self.segments:
            return utterance
        if utterance not in self.segments:
            raise UserError(
                f"{self.path}/segments: no line for {utterance}; run utils/fix_data_dir.py {self.path}"
            )
        return self.segments[utterance].recording


def check_split(data: Path | DataDir, num: int) -> None:
    """Raise UserError if a data directory has fewer utterances than `num`."""
    tables = _opened(data)
    if num > len(tables.utt2spk):
        raise UserError(
            f"{tables.path}: {len(tables.utt2spk)} utterance(s) cannot be split into {num} jobs; lower --nj"
        )


def _opened(data: Path | DataDir) -> DataDir:
    return data if isinstance(data, DataDir) else DataDir(data)


def split(data: Path | DataDir, num: int, by_features: bool = True) -> list[Keys]:
    """The utterances of a data directory in `num` lists of nearly equal duration, each in C order. The result
    is deterministic; without `by_features` it does not depend on features.

    Speakers stay whole if possible (`pyasr.data.tables.dividing`). Raises UserError if the directory has
    fewer utterances than `num`.
    """
    data = _opened(data)
    check_split(data, num)
    durations = data.durations if by_features else data.audio_durations
    return data.utterances.shared_out(divided(data.spk2utt, durations.array, num), num)


def split_by_speakers(data: Path | DataDir, num: int) -> list[Keys]:
    """The utterances in `num` lists of whole speakers, of nearly equal duration; some lists are empty if
    there are fewer speakers."""
    data = _opened(data)
    return data.utterances.shared_out(divided_by_speakers(data.spk2utt, data.durations.array, num), num)


def write_data_dir(path: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Write {file name: table} into the existing directory `path`; spk2utt is computed from utt2spk."""
    for name, table in tables.items():
        write_table(Path(path) / name, table)
    if "utt2spk" in tables:
        utt2spk = tables["utt2spk"]
        known = utt2spk if isinstance(utt2spk, Table) else Table.of(utt2spk.items())
        write_table(Path(path) / "spk2utt", invert(known))
