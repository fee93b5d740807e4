"""The data directory: tables of utterances, their speakers, words, audio and features.

    data = DataDir("data/train")
    data.utterances[:3], data.utt2spk["joe-001"], data.durations["joe-001"]

Tables are read when first asked for. A DataDir does not check that tables agree: `pyasr.data.validation` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.pipes import admit_table, is_command
from pyasr.base.table_paths import placed_table
from pyasr.data import distortion
from pyasr.io.text import invert, read_numbers, read_table, read_utt2spk, write_table

UTTERANCE_TABLES = ("text", "segments", "utt2spk", "feats.scp", "utt2dur", "utt2num_frames", "utt2lang", "utt2uniq", "utt2warp", "vad.scp")
SPEAKER_TABLES = ("spk2utt", "cmvn.scp", "spk2gender", "spk2warp")
SPEED, VOLUME, DISTORTION = "reco2speed", "reco2volume", "reco2distortion"
AUDIO_CHANGES = (SPEED, VOLUME, DISTORTION)
FILE_AND_CHANNEL = "reco2file_and_channel"
RECORDING_TABLES = ("wav.scp", "reco2dur", FILE_AND_CHANNEL, *AUDIO_CHANGES)
TABLES = UTTERANCE_TABLES + SPEAKER_TABLES + RECORDING_TABLES
LEAST_SPEED, MOST_SPEED = 0.25, 4.0
FIX = "utils/fix_data_dir.py"
_UNBALANCED = 1.05
TO_THE_END = -1.0


def default_value(table: str, key: str) -> str | None:
    """What a missing line of a table stands for; None where nothing can be assumed."""
    return {SPEED: "1", VOLUME: "1", DISTORTION: distortion.NONE, "utt2uniq": key}.get(table)


def completed(name: str, table: dict[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The table `name`, one that has default values, with a line for each of these keys."""
    return {key: table.get(key) or default_value(name, key) for key in keys}


@dataclass(frozen=True)
class Segment:
    """The part of a recording that an utterance is; an end of -1 stands for the end of the recording, as in Kaldi."""

    recording: str
    begin_s: float
    end_s: float


class DataDir:
    """A data directory; every property is one table as a dictionary. Raises UserError where a table cannot be read."""

    def __init__(self, path: Path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"{self.path}: no such data directory")

    def has(self, name: str) -> bool:
        """Whether the table `name` is there."""
        return (self.path / name).exists()

    def table(self, name: str) -> dict[str, str]:
        """The table `name` as {key: rest of the line}; paths of scp tables are valid from the current directory."""
        table = read_table(self.path / name)
        return placed_table(self.path / name, table) if name.endswith(".scp") else table

    def optional_table(self, name: str) -> dict[str, str]:
        """The table `name`, empty where there is none."""
        return self.table(name) if self.has(name) else {}

    @cached_property
    def utt2spk(self) -> dict[str, str]:
        """{utterance: speaker}"""
        return read_utt2spk(self.path / "utt2spk")

    @cached_property
    def spk2utt(self) -> dict[str, list[str]]:
        """Made from utt2spk, so that the two agree."""
        return {speaker: utterances.split() for speaker, utterances in invert(self.utt2spk).items()}

    @cached_property
    def utterances(self) -> list[str]:
        """All utterances of utt2spk in C order."""
        return sorted(self.utt2spk)

    @cached_property
    def text(self) -> dict[str, str]:
        """{utterance: words separated by blanks}"""
        return self.table("text")

    @cached_property
    def wav_scp(self) -> dict[str, str]:
        """{recording: entry for `pyasr.data.audio.read_audio`}. Raises UserError for commands where `pyasr.base.pipes` refuses them."""
        table = self.table("wav.scp")
        admit_table(table, self.path / "wav.scp")
        return table

    def check_commands(self) -> None:
        """Raise UserError where wav.scp or reco2distortion names commands that are refused; to be called before any work."""
        self.wav_scp
        commands = {name: next(filter(is_command, found.sources), "") for name, found in self.reco2distortion.items()}
        admit_table(commands, self.path / DISTORTION)

    @cached_property
    def reco2file_and_channel(self) -> dict[str, str]:
        """{recording: "FILE CHANNEL"}, empty where there is no such table; `pyasr.data.channels` reads a line."""
        return self.optional_table(FILE_AND_CHANNEL)

    @cached_property
    def reco2speed(self) -> dict[str, str]:
        """{recording: how many times as fast it is to be played}, empty where there is no such table."""
        return self.optional_table(SPEED)

    @cached_property
    def reco2volume(self) -> dict[str, str]:
        """{recording: factor on its samples}, empty where there is no such table."""
        return self.optional_table(VOLUME)

    @cached_property
    def reco2distortion(self) -> dict[str, distortion.Distortion]:
        """{recording: room and noises}, empty where there is no such table."""
        return distortion.parse_table(self.optional_table(DISTORTION), self.path / DISTORTION)

    @cached_property
    def feats_scp(self) -> dict[str, str]:
        """{utterance: extended filename}"""
        return self.table("feats.scp")

    @cached_property
    def cmvn_scp(self) -> dict[str, str]:
        """{speaker: extended filename}"""
        return self.table("cmvn.scp")

    @cached_property
    def utt2num_frames(self) -> dict[str, int]:
        """{utterance: number of frames}"""
        return read_numbers(self.path / "utt2num_frames", int)

    @cached_property
    def utt2dur(self) -> dict[str, float]:
        """Seconds."""
        return read_numbers(self.path / "utt2dur")

    @cached_property
    def reco2dur(self) -> dict[str, float]:
        """Seconds of recordings."""
        return read_numbers(self.path / "reco2dur")

    @cached_property
    def segments(self) -> dict[str, Segment]:
        """Empty where every recording is one utterance. Raises UserError for a line that is not 'UTTERANCE RECORDING BEGIN END'."""
        found = {}
        for key, value in self.optional_table("segments").items():
            try:
                recording, begin, end = value.split()
                found[key] = Segment(recording, float(begin), float(end))
                if not (0 <= found[key].begin_s < found[key].end_s < np.inf or found[key].begin_s >= 0 and found[key].end_s == TO_THE_END):
                    raise ValueError
            except ValueError:
                raise UserError(f"{self.path}/segments: '{key} {value}' is not 'UTTERANCE RECORDING BEGIN END' with times in seconds, "
                                f"END after BEGIN, or -1 for that of the recording; correct the line, or run {FIX} {self.path}") from None
        return found

    @cached_property
    def durations(self) -> dict[str, float]:
        """A measure of every utterance's length: seconds, or frames, or 1 where nothing is known."""
        counted = [path for path in (self.path / "feats/utt2num_frames", self.path / "utt2num_frames") if path.exists()]  # and its copy
        if self.has("utt2dur") or not counted:
            return self.audio_durations
        return self._for_all(read_numbers(counted[0], int))

    @cached_property
    def audio_durations(self) -> dict[str, float]:
        """The same whatever features there are."""
        if self.has("utt2dur"):
            return self._for_all(self.utt2dur)
        return self._for_all({utt: part.end_s - part.begin_s for utt, part in self.segments.items() if part.end_s > part.begin_s})

    def _for_all(self, known: dict[str, float]) -> dict[str, float]:
        """With the mean for those utterances that are not known."""
        missing = float(np.mean(list(known.values()))) if known else 1.0
        return {utt: float(known.get(utt, missing)) for utt in self.utterances}

    def recording(self, utterance: str) -> str:
        """The key of wav.scp that an utterance is in. Raises UserError where `segments` is there, but not the utterance in it."""
        if self.segments and utterance not in self.segments:
            raise UserError(f"{self.path}/segments: no line for {utterance}; run utils/fix_data_dir.py {self.path}")
        return self.segments[utterance].recording if self.segments else utterance


def check_split(path: Path, num: int) -> None:
    """Raises UserError where a data directory has fewer utterances than `num`."""
    utterances = DataDir(path).utterances
    if num > len(utterances):
        raise UserError(f"{path}: {len(utterances)} utterance(s) cannot be split over {num} jobs; lower --nj")


def split(path: Path, num: int, by_features: bool = True) -> list[list[str]]:
    """The utterances of a data directory in `num` lists of nearly equal duration, each in C order; the same at every call, and without
    `by_features` whatever features there are.

    Speakers stay whole unless that would make a list more than 5 % longer than the mean; then the longest are cut into shorter
    pieces, as few as needed. Raises UserError where there are fewer utterances than lists.
    """
    check_split(path, num)
    data = DataDir(path)
    durations = data.durations if by_features else data.audio_durations
    total = sum(durations.values())
    limit = total / num
    while True:
        pieces = _pieces(data, durations, limit)
        lists, longest = distribute(pieces, num, durations)
        whole = all(len(piece) == 1 for piece in pieces)
        if all(lists) and (longest <= _UNBALANCED * total / num or whole):
            return [sorted(utterances) for utterances in lists]
        limit /= 2


def _pieces(data: DataDir, durations: dict[str, float], limit: float) -> list[list[str]]:
    """Speakers, those longer than `limit` cut into runs of utterances of about equal duration up to it."""
    pieces = []
    for utterances in data.spk2utt.values():
        ends = np.cumsum([durations[utt] for utt in utterances])
        num = int(np.ceil(ends[-1] / limit - 1e-9)) if limit > 0 else len(utterances)
        part = np.minimum((ends - ends[0] / 2) / max(ends[-1], 1e-9) * num, num - 1).astype(int) if num > 1 else np.zeros(len(ends), int)
        if num >= len(utterances):
            part = np.arange(len(utterances))
        pieces += [[utterances[i] for i in np.flatnonzero(part == p)] for p in np.unique(part)]
    return pieces


def distribute(pieces: list[list[str]], num: int, durations: dict[str, float]) -> tuple[list[list[str]], float]:
    """(lists of whole pieces, duration of the longest): the longest piece of utterances first, into the list that is shortest so far."""
    lists: list[list[str]] = [[] for _ in range(num)]
    heap = [(0.0, 0, j) for j in range(num)]  # duration, utterances, number of each list, the shortest first
    lengths = [sum(durations[utt] for utt in piece) for piece in pieces]
    for i in sorted(range(len(pieces)), key=lambda i: (-lengths[i], pieces[i][0])):
        load, _, shortest = heap[0]
        lists[shortest] += pieces[i]
        heapreplace(heap, (load + lengths[i], len(lists[shortest]), shortest))
    return lists, max(heap)[0]


def write_data_dir(path: Path, tables: dict[str, dict[str, object]]) -> None:
    """Write {file name: table} into the existing directory `path`; spk2utt is made from utt2spk."""
    for name, table in tables.items():
        write_table(Path(path) / name, table)
    if "utt2spk" in tables:
        write_table(Path(path) / "spk2utt", invert(tables["utt2spk"]))
