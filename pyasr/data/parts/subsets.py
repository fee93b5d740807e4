"""Subsets, combinations and copies of data directories.

A selection of `num` utterances has all utterances, with a warning, if the directory has fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.data.parts.side_files import carry, leave, side_files
from pyasr.data.tables.datadir import (
    FILE_AND_CHANNEL,
    RECORDING_TABLES,
    SPEAKER_TABLES,
    TABLES,
    UTTERANCE_TABLES,
    DataDir,
    Tables,
    completed,
    default_value,
    filtered,
)
from pyasr.io.keys import Keys
from pyasr.io.lazy_tables import Joined, Lazy, Stored, mapped
from pyasr.io.tables import Table
from pyasr.io.text_tables import read_lines, write_inverted, write_table

FEATURE_TABLES = ("feats.scp", "cmvn.scp", "utt2num_frames", "vad.scp")


def table_files(data: DataDir, with_features: bool = True) -> list[Path]:
    """The files of `data` on which a copy or a part of it depends."""
    tables = [
        data.path / name
        for name in TABLES
        if data.has(name) and (with_features or name not in FEATURE_TABLES)
    ]
    return tables + side_files(data, with_features)


def read_all(data: DataDir) -> Tables:
    """As `all_tables`. Raises UserError if a table cannot be read, or utt2spk is missing."""
    for name in (tables := all_tables(data)):
        DataDir(data.path).table(name)
    return tables


def all_tables(data: DataDir) -> Tables:
    """All known tables of `data`, utt2spk first; the others are read at each iteration over them."""
    others = [name for name in TABLES if name != "utt2spk" and data.has(name)]
    return {
        "utt2spk": data.utt2spk,
        **{name: Stored(partial(data.table, name), partial(data.pairs, name)) for name in others},
    }


def write_all(path: Path, tables: Tables) -> None:
    """Write tables into the existing directory `path`; spk2utt is computed from utt2spk."""
    for name, table in tables.items():
        if name != "spk2utt":
            write_table(Path(path) / name, table)
    write_inverted(Path(path) / "spk2utt", Path(path) / "utt2spk")


def num_utterances(path: Path) -> int:
    """The number of utterances of a data directory that `write_all` has written."""
    return sum(1 for _ in DataDir(path).pairs("utt2spk"))


def write_subset(data: DataDir, out: Path, utterances: Sequence[str]) -> None:
    """Write a data directory of some utterances of `data`. Raises UserError for an utterance that `data` or
    its segments lack, and for an empty list."""
    unknown = [utt for utt in utterances if utt not in data.utt2spk]
    if unknown:
        raise UserError(
            f"{data.path}/utt2spk: no utterance '{unknown[0]}' ({len(unknown)} such); correct the list"
        )
    if not utterances:
        raise UserError(f"{data.path}: no utterance selected; select at least one")
    check_recordings(data, [utterances])
    write_all(out, filtered(read_all(data), Table.of_keys(utterances).in_order()))


def check_recordings(data: DataDir, lists: Iterable[Sequence[str]]) -> None:
    """Raise UserError if `data` has segments, but no segment of an utterance of these lists."""
    for utterance in chain.from_iterable(lists) if data.segments else ():
        if utterance not in data.segments:
            data.recording(utterance)


def first(data: DataDir, num: int) -> Keys:
    """The first `num` utterances in C order."""
    _warn_of_fewer(data, num)
    return data.utterances[:num]


def all_but_first(data: DataDir, num: int) -> Keys:
    """All utterances after the first `num` in C order. Raises UserError if none remains."""
    if num >= len(data.utterances):
        raise UserError(
            f"{data.path}: {len(data.utterances)} utterances, none after the first {num}; give a smaller "
            "number"
        )
    return data.utterances[num:]


def last(data: DataDir, num: int) -> Keys:
    """The last `num` utterances in C order, as by Kaldi's `subset_data_dir.sh --last`."""
    _warn_of_fewer(data, num)
    return data.utterances[-num:]


def without_repetitions(data: DataDir, most: int, seed: int = 0) -> Keys:
    """Up to `most` utterances of each transcript, in C order, as by Kaldi's `remove_dup_utts.sh`; none
    without a transcript.

    If a transcript has more utterances, they are drawn at random from all of the data. The draw depends only
    on the seed, the transcript and its utterances.
    """
    text, taken = data.table("text"), np.zeros(len(data.utterances), bool)
    places = np.flatnonzero(np.fromiter(map(text.__contains__, data.utterances), bool))
    utterances = data.utterances.take(places)
    taken[places] = True
    hashes = np.fromiter((hash(_words(text[utt])) for utt in utterances), np.int64, len(utterances))
    for many in _groups_above(hashes, most):
        taken[places[many]] = False
        for words, same in _by_words(text, utterances, many).items():
            taken[places[_drawn(same, most, seed, words)]] = True
    return data.utterances.take(np.flatnonzero(taken))


def _words(text: str) -> str:
    return " ".join(text.split())


def _groups_above(values: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """For each value that occurs more than `most` times, its ascending indices."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=~values[order][:1]))
    sizes = np.diff(begins, append=len(order))
    for group in np.flatnonzero(sizes > most).tolist():
        yield order[begins[group] : begins[group] + sizes[group]]


def _by_words(text: Mapping[str, str], utterances: Keys, places: np.ndarray) -> dict[str, list[int]]:
    """{transcript: the `places` of its utterances}"""
    found: dict[str, list[int]] = {}
    for place in places.tolist():
        found.setdefault(_words(text[utterances[place]]), []).append(place)
    return found


def _drawn(places: list[int], most: int, seed: int, words: str) -> np.ndarray:
    """All places, or `most` drawn without replacement."""
    if len(places) <= most:
        return np.array(places)
    return np.array(places)[generator(seed, "same text", words).permutation(len(places))[:most]]


def shortest(data: DataDir, num: int) -> Keys:
    """The `num` shortest utterances. Raises UserError if no table has durations."""
    if not any(map(data.has, ("utt2dur", "utt2num_frames", "segments"))):
        raise UserError(
            f"{data.path}: utt2dur, utt2num_frames and segments are missing, so durations are unknown; "
            "extract features first"
        )
    _warn_of_fewer(data, num)
    return _taken(data, np.argsort(data.durations.array, kind="stable")[:num])


def random_choice(data: DataDir, num: int, seed: int) -> Keys:
    """`num` utterances drawn without replacement; the same for the same seed."""
    _warn_of_fewer(data, num)
    return _taken(data, generator(seed, "subset").permutation(len(data.utterances))[:num])


def per_speaker(data: DataDir, num: int) -> Keys:
    """Up to `num` utterances of each speaker, spread evenly over the speaker's utterances."""
    begins, sizes = data.spk2utt.borders[:-1], np.diff(data.spk2utt.borders)
    taken = np.minimum(sizes, num)
    each = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)  # 0, 1, ... of each speaker
    places = np.repeat(begins, taken) + each * np.repeat(sizes, taken) // np.repeat(taken, taken)
    return _taken(data, data.spk2utt.members[places])


def of_speakers(data: DataDir, num: int) -> Keys:
    """All utterances of the first speakers in C order, as many as give at least `num` utterances."""
    _warn_of_fewer(data, num)
    sizes = np.diff(data.spk2utt.borders)[data.spk2utt.names.order]
    num_speakers = np.searchsorted(np.cumsum(sizes), num) + 1
    return _of_groups(data, data.spk2utt.names.order[:num_speakers])


def utterances_of(data: DataDir, speakers: list[str]) -> Keys:
    """All utterances of the given speakers. Raises UserError for a speaker that `data` lacks."""
    groups = []
    for speaker in speakers:
        number = data.spk2utt.names.line_of(speaker)
        if number is None:
            raise UserError(f"{data.path}/utt2spk: no speaker '{speaker}'; correct the list")
        groups.append(number)
    return _of_groups(data, groups)


def _of_groups(data: DataDir, groups: Iterable[int]) -> Keys:
    """All utterances of the speakers with these numbers."""
    members, borders = data.spk2utt.members, data.spk2utt.borders
    return _taken(
        data, np.concatenate([np.zeros(0, np.int64), *(members[borders[i] : borders[i + 1]] for i in groups)])
    )


def listed(path: Path) -> list[str]:
    """The first word of every line of a file: utterances or speakers."""
    return [line.split()[0] for line in read_lines(path) if line.strip()]


def _warn_of_fewer(data: DataDir, num: int) -> None:
    if num > len(data.utterances):
        log.warning(
            f"{data.path}: {len(data.utterances)} utterances, fewer than the requested {num}; all are "
            "selected"
        )


def _taken(data: DataDir, places: np.ndarray) -> Keys:
    """The utterances with these indices, in C order."""
    return data.utterances.take(np.sort(places))


def combine(sources: list[DataDir], out: Path) -> None:
    """Write one data directory of several. Tables that not all of them have are skipped, with a warning, and
    so are tables with different values of a speaker, such as cmvn.scp. If only some directories have
    segments, each utterance of the others gets a segment that is its whole recording, with a log line.

    Raises UserError if two directories have the same utterance, or a recording with different values.
    """
    parts = [read_all(data) for data in sources]
    _complete(parts)
    _segment(parts, sources)
    shared = set.intersection(*map(set, parts))
    for name in sorted(set().union(*parts) - shared):
        log.warning(f"{name} is not written: not all of the directories have it")
    for name in TABLES:
        if name in shared and name != "spk2utt" and (table := _union(name, parts, sources)) is not None:
            write_table(out / name, table)
    write_inverted(out / "spk2utt", out / "utt2spk")
    leave(sources)


def _segment(parts: list[dict], sources: list[DataDir]) -> None:
    """If one directory has segments, add segments to the others: each utterance is a whole recording."""
    has_segments = ["segments" in tables and any(True for _ in tables["segments"]) for tables in parts]
    for tables, data, has in zip(parts, sources, has_segments):
        if any(has_segments) and not has:
            tables["segments"] = Lazy(partial(_whole_recordings, tables["utt2spk"]))
            log.info(
                f"{data.path}: no segments, unlike other directories; its utterances get lines 'UTTERANCE "
                "UTTERANCE 0 -1'"
            )


def _whole_recordings(utterances: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((utt, f"{utt} 0 -1") for utt in utterances)


def _complete(parts: list[dict]) -> None:
    """If one directory has a table with default values, add it to the others, too."""
    for name in set().union(*parts):
        for tables in parts:
            if name not in tables and default_value(name, "") is not None:
                tables[name] = completed(
                    name, {}, tables.get("wav.scp" if name in RECORDING_TABLES else "utt2spk", {})
                )


def _union(name: str, parts: list[Tables], sources: list[DataDir]) -> Joined | None:
    """All entries of one table; None if directories have different values of a speaker."""
    earlier: list[Table] = []
    for tables, data in zip(parts, sources):
        table = Table.of(tables[name].items())
        for key in sorted(key for key in table if any(key in other for other in earlier)):
            value = next(other[key] for other in earlier if key in other)
            if name in SPEAKER_TABLES and table[key] != value:
                log.warning(
                    f"{name} is not written: speaker {key} has other values in {data.path}; create it again"
                )
                return None
            if name in UTTERANCE_TABLES or table[key] != value:
                flag = (
                    "--reco-prefix" if name in RECORDING_TABLES and data.has("segments") else "--utt-prefix"
                )
                raise UserError(
                    f"{data.path}/{name}: '{key}' is also in another of the directories; "
                    f"rename it with utils/copy_data_dir.py {flag}"
                )
        earlier.append(table)
    return Joined(earlier)


@dataclass(frozen=True)
class Renaming:
    """Prefixes and suffixes for the names of a copy. The utterance prefix should begin with the speaker
    prefix, for Kaldi's order."""

    utt_prefix: str = option("", "prefix added to the name of each utterance")
    utt_suffix: str = option("", "suffix added to the name of each utterance")
    spk_prefix: str = option("", "prefix added to the name of each speaker")
    spk_suffix: str = option("", "suffix added to the name of each speaker")
    reco_prefix: str = option(
        "",
        "prefix added to the name of each recording of a directory with segments; without "
        "segments, recordings are named like utterances",
    )
    reco_suffix: str = option("", "suffix added to the name of each recording of a directory with segments")

    def utterance(self, name: str) -> str:
        """New name of an utterance."""
        return f"{self.utt_prefix}{name}{self.utt_suffix}"

    def speaker(self, name: str) -> str:
        """New name of a speaker."""
        return f"{self.spk_prefix}{name}{self.spk_suffix}"

    def recording(self, name: str) -> str:
        """New name of a recording that has segments."""
        return f"{self.reco_prefix}{name}{self.reco_suffix}"


def copy(data: DataDir, out: Path, renaming: Renaming, with_features: bool = True) -> None:
    """Write a copy of `data` with other names, optionally without feature tables. `utt2uniq` maps renamed
    utterances to their previous names, or to the originals that it already has, as in Kaldi's
    copy_data_dir.sh."""
    tables = {
        name: table for name, table in read_all(data).items() if with_features or name not in FEATURE_TABLES
    }
    if renaming.utterance(""):
        tables["utt2uniq"] = completed("utt2uniq", tables.get("utt2uniq", {}), data.utterances)
    write_all(out, renamed(tables, renaming))
    carry(data, out, with_features)


def renamed(tables: Tables, renaming: Renaming) -> Tables:
    """The tables with new names of utterances, speakers and recordings."""
    recording = renaming.recording if "segments" in tables else renaming.utterance
    rename_by = dict.fromkeys(UTTERANCE_TABLES, renaming.utterance) | dict.fromkeys(
        SPEAKER_TABLES, renaming.speaker
    )
    rename_by |= dict.fromkeys(RECORDING_TABLES, recording)
    rename_value = {"utt2spk": renaming.speaker, "segments": lambda value: _with_first_word(value, recording)}
    return {name: mapped(table, rename_by[name], rename_value.get(name)) for name, table in tables.items()}


def _with_first_word(value: str, rename: Callable[[str], str]) -> str:
    """'RECORDING BEGIN END' with the recording renamed; missing fields of a damaged line remain missing."""
    name, *rest = value.split(maxsplit=1) or [""]
    return " ".join([rename(name), *rest])


def own_copy(tables: Tables, renaming: Renaming) -> Tables:
    """`renamed`, with recordings and the files of their channels renamed like utterances. The result can be
    joined with `tables`: the copies have their own recordings and times."""
    copy = renamed(
        tables, replace(renaming, reco_prefix=renaming.utt_prefix, reco_suffix=renaming.utt_suffix)
    )
    if files := copy.get(FILE_AND_CHANNEL):
        copy[FILE_AND_CHANNEL] = mapped(
            files, value=lambda value: _with_first_word(value, renaming.utterance)
        )
    return copy


def joined(parts: list[Tables]) -> Tables:
    """The tables of several directories joined; all directories have the same tables."""
    return {name: Joined([tables[name] for tables in parts]) for name in parts[0]}
