"""Parts and unions of data directories, written as data directories.

A part of `num` utterances has all of them, with a warning, if the directory has fewer.
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
    FILE_AND_CHANNEL, RECORDING_TABLES, SPEAKER_TABLES, TABLES, UTTERANCE_TABLES, DataDir, Tables, completed, default_value, filtered,
)  # fmt: skip
from pyasr.io.keys import Keys
from pyasr.io.lazy_tables import Joined, Lazy, Stored, at_hand, mapped
from pyasr.io.tables import Table
from pyasr.io.text_tables import invert, read_lines, write_table

FEATURE_TABLES = ("feats.scp", "cmvn.scp", "utt2num_frames", "vad.scp")


def table_files(data: DataDir, with_features: bool = True) -> list[Path]:
    """The files of `data` that a copy or a part of it depends on."""
    tables = [data.path / name for name in TABLES if data.has(name) and (with_features or name not in FEATURE_TABLES)]
    return tables + side_files(data, with_features)


def read_all(data: DataDir) -> Tables:
    """As `all_tables`. Raises UserError where one cannot be read, and where utt2spk is missing."""
    tables = all_tables(data)
    for table in tables.values():
        at_hand(table)
    return tables


def all_tables(data: DataDir) -> Tables:
    """All tables that Kaldi knows and `data` has, utt2spk first, each of them read where it is gone through."""
    names = ["utt2spk", *(name for name in TABLES if name != "utt2spk" and data.has(name))]
    return {name: Stored(partial(_table_of, data, name)) for name in names}


def _table_of(data: DataDir, name: str) -> Mapping[str, str]:
    return data.utt2spk if name == "utt2spk" else data.table(name)


def write_all(path: Path, tables: Tables) -> None:
    """Write tables into the existing directory `path`, spk2utt made from utt2spk."""
    for name, table in tables.items():
        if name != "spk2utt":
            write_table(Path(path) / name, table)
    write_table(Path(path) / "spk2utt", invert(Table.read(Path(path) / "utt2spk")))


def write_subset(data: DataDir, out: Path, utterances: Sequence[str]) -> None:
    """The data directory of some utterances of `data`. Raises UserError for one that `data` or its segments lack, or for none at all."""
    unknown = [utt for utt in utterances if utt not in data.utt2spk]
    if unknown:
        raise UserError(f"{data.path}/utt2spk: no utterance '{unknown[0]}' ({len(unknown)} such); correct the list")
    if not utterances:
        raise UserError(f"{data.path}: no utterance chosen; choose at least one")
    check_recordings(data, [utterances])
    write_all(out, filtered(read_all(data), Table.of_keys(utterances).in_order()))


def check_recordings(data: DataDir, lists: Iterable[Sequence[str]]) -> None:
    """Raise UserError for an utterance of these lists that the segments of `data`, where there are any, lack."""
    for utterance in chain.from_iterable(lists) if data.segments else ():
        if utterance not in data.segments:
            data.recording(utterance)


def first(data: DataDir, num: int) -> Keys:
    """The first `num` utterances in C order."""
    _warn_of_fewer(data, num)
    return data.utterances[:num]


def all_but_first(data: DataDir, num: int) -> Keys:
    """Those that `first` leaves. Raises UserError where it leaves none."""
    if num >= len(data.utterances):
        raise UserError(f"{data.path}: {len(data.utterances)} utterances, of which none comes after the first {num}; give a smaller number")
    return data.utterances[num:]


def last(data: DataDir, num: int) -> Keys:
    """The last `num` utterances in C order, as of Kaldi's `subset_data_dir.sh --last`."""
    _warn_of_fewer(data, num)
    return data.utterances[-num:]


def without_repetitions(data: DataDir, most: int, seed: int = 0) -> Keys:
    """Up to `most` utterances of each transcript, as of Kaldi's `remove_dup_utts.sh`; none without a transcript.

    If there are more they are drawn, so that they come from all of the data. The draw depends only on the seed, the transcript and its
    utterances. In C order.
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
    """The places of each number that stands at more than `most` of them, ascending."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=~values[order][:1]))
    sizes = np.diff(begins, append=len(order))
    for group in np.flatnonzero(sizes > most).tolist():
        yield order[begins[group] : begins[group] + sizes[group]]


def _by_words(text: Mapping[str, str], utterances: Keys, places: np.ndarray) -> dict[str, list[int]]:
    """{transcript: which of `places` have it}"""
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
    """The `num` shortest utterances. Raises UserError where no table tells durations."""
    if not any(map(data.has, ("utt2dur", "utt2num_frames", "segments"))):
        raise UserError(f"{data.path}: utt2dur, utt2num_frames and segments are missing, the shortest utterances are unknown; "
                        "make features first")
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
    """All utterances of whole speakers, in C order of speakers, until there are at least `num`."""
    _warn_of_fewer(data, num)
    sizes = np.diff(data.spk2utt.borders)[data.spk2utt.names.order]
    num_speakers = np.searchsorted(np.cumsum(sizes), num) + 1
    return _of_groups(data, data.spk2utt.names.order[:num_speakers])


def utterances_of(data: DataDir, speakers: list[str]) -> Keys:
    """All utterances of the given speakers. Raises UserError for a speaker that `data` does not have."""
    for speaker in speakers:
        if speaker not in data.spk2utt:
            raise UserError(f"{data.path}/utt2spk: no speaker '{speaker}'; correct the list")
    return _of_groups(data, [data.spk2utt.names.line_of(speaker) for speaker in speakers])


def _of_groups(data: DataDir, groups: Iterable[int]) -> Keys:
    """All utterances of speakers."""
    members, borders = data.spk2utt.members, data.spk2utt.borders
    return _taken(data, np.concatenate([np.zeros(0, np.int64), *(members[borders[i] : borders[i + 1]] for i in groups)]))


def listed(path: Path) -> list[str]:
    """The first word of every line of a file: utterances or speakers."""
    return [line.split()[0] for line in read_lines(path) if line.strip()]


def _warn_of_fewer(data: DataDir, num: int) -> None:
    if num > len(data.utterances):
        log.warning(f"{data.path}: {len(data.utterances)} utterances, fewer than the {num} asked for; all are taken")


def _taken(data: DataDir, places: np.ndarray) -> Keys:
    """The utterances at these places, in C order."""
    return data.utterances.take(np.sort(places))


def combine(sources: list[DataDir], out: Path) -> None:
    """One data directory of several. Tables that only some of them have are left out, with a log line; so is cmvn.scp where they share
    speakers. Where some have segments, the recordings of the others get one each, with a log line.

    Raises UserError when an utterance or a recording means different things in two of them.
    """
    parts = [read_all(data) for data in sources]
    _complete(parts)
    _segment(parts, sources)
    shared = set.intersection(*map(set, parts))
    for name in sorted(set().union(*parts) - shared):
        log.warning(f"{name} is left out: not all of the directories have it")
    for name in TABLES:
        if name in shared and name != "spk2utt" and (table := _union(name, parts, sources)) is not None:
            write_table(out / name, table)
    write_table(out / "spk2utt", invert(Table.read(out / "utt2spk")))
    leave(sources)


def _segment(parts: list[dict], sources: list[DataDir]) -> None:
    """Where one has segments, every recording of the others that is an utterance becomes a segment, from its begin to its end."""
    has_segments = ["segments" in tables and any(True for _ in tables["segments"]) for tables in parts]
    for tables, data, has in zip(parts, sources, has_segments):
        if any(has_segments) and not has:
            tables["segments"] = Lazy(partial(_whole_recordings, tables["utt2spk"]))
            log.info(f"{data.path}: no segments, which others have; its utterances get lines 'UTTERANCE UTTERANCE 0 -1'")


def _whole_recordings(utterances: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((utt, f"{utt} 0 -1") for utt in utterances)


def _complete(parts: list[dict]) -> None:
    """Where one has a table whose missing lines stand for something, the others get it too."""
    for name in set().union(*parts):
        for tables in parts:
            if name not in tables and default_value(name, "") is not None:
                tables[name] = completed(name, {}, tables.get("wav.scp" if name in RECORDING_TABLES else "utt2spk", {}))


def _union(name: str, parts: list[Tables], sources: list[DataDir]) -> Joined | None:
    """All entries of one table; None where directories give a speaker different values."""
    earlier: list[Table] = []
    for tables, data in zip(parts, sources):
        table = Table.of(tables[name].items())
        for key in sorted(key for key in table if any(key in other for other in earlier)):
            value = next(other[key] for other in earlier if key in other)
            if name in SPEAKER_TABLES and table[key] != value:
                log.warning(f"{name} is left out: speaker {key} has other values in {data.path}; make it again")
                return None
            if name in UTTERANCE_TABLES or table[key] != value:
                flag = "--reco-prefix" if name in RECORDING_TABLES and data.has("segments") else "--utt-prefix"
                raise UserError(f"{data.path}/{name}: '{key}' is in another of the directories too; "
                                f"rename with utils/copy_data_dir.py {flag}")
        earlier.append(table)
    return Joined(earlier)


@dataclass(frozen=True)
class Renaming:
    """Prefixes and suffixes for the names of a copy. A speaker's prefix should begin the utterances' too, for Kaldi's order."""

    utt_prefix: str = option("", "put before every utterance")
    utt_suffix: str = option("", "put after every utterance")
    spk_prefix: str = option("", "put before every speaker")
    spk_suffix: str = option("", "put after every speaker")
    reco_prefix: str = option("", "put before every recording that has segments; others are named as their utterances")
    reco_suffix: str = option("", "put after every recording that has segments")

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
    """A copy of `data` with other names, without the tables of features where they are to be made anew. `utt2uniq` leads from utterances
    that are renamed to what they were called, or to the originals that it has already, as with Kaldi's copy_data_dir.sh."""
    tables = {name: table for name, table in read_all(data).items() if with_features or name not in FEATURE_TABLES}
    if renaming.utterance(""):
        tables["utt2uniq"] = completed("utt2uniq", tables.get("utt2uniq", {}), data.utterances)
    write_all(out, renamed(tables, renaming))
    carry(data, out, with_features)


def renamed(tables: Tables, renaming: Renaming) -> Tables:
    """The tables with other names of utterances, speakers and recordings."""
    recording = renaming.recording if "segments" in tables else renaming.utterance
    rename_by = dict.fromkeys(UTTERANCE_TABLES, renaming.utterance) | dict.fromkeys(SPEAKER_TABLES, renaming.speaker)
    rename_by |= dict.fromkeys(RECORDING_TABLES, recording)
    rename_value = {"utt2spk": renaming.speaker, "segments": lambda value: _with_first_word(value, recording)}
    return {name: mapped(table, rename_by[name], rename_value.get(name)) for name, table in tables.items()}


def _with_first_word(value: str, rename: Callable[[str], str]) -> str:
    """'RECORDING BEGIN END' with another recording; what a damaged line lacks is lacking still."""
    name, *rest = value.split(maxsplit=1) or [""]
    return " ".join([rename(name), *rest])


def own_copy(tables: Tables, renaming: Renaming) -> Tables:
    """`renamed`, with recordings and the files that they are channels of renamed as utterances are: tables that can be joined with those
    they were made of, of which they share no times."""
    copy = renamed(tables, replace(renaming, reco_prefix=renaming.utt_prefix, reco_suffix=renaming.utt_suffix))
    if files := copy.get(FILE_AND_CHANNEL):
        copy[FILE_AND_CHANNEL] = mapped(files, value=lambda value: _with_first_word(value, renaming.utterance))
    return copy


def joined(parts: list[Tables]) -> Tables:
    """The lines of several directories' tables, which have the same names."""
    return {name: Joined([tables[name] for tables in parts]) for name in parts[0]}
