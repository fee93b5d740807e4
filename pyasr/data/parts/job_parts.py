"""Parts of a data directory for jobs: the step writes them once, so that each job reads only the lines of its
own utterances.

    with parts_of_jobs(data, out, split(data, nj), tables=("utt2spk", "feats.scp")):  # OUT/.data_parts/JOB
        run_jobs(...)                                                                 # in the step
    part = part_of(spec.data, spec.out, spec.num_jobs, job)                           # in the job
    part.utterances, part.directory().utt2spk

The parts are in the scratch directory of the step, separate from those of other steps, and are removed when
its jobs have ended. Messages of the jobs name the data directory itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from pyasr.base.files.pipes import is_command
from pyasr.base.files.places import remove_tree
from pyasr.data.tables.datadir import RECORDING_TABLES, SPEAKER_TABLES, DataDir, Tables, split
from pyasr.io.keys import Keys, distinct
from pyasr.io.lazy_tables import Stored, at_hand, mapped
from pyasr.io.tables import Table
from pyasr.io.text_tables import write_inverted, write_table

PARTS = ".data_parts"
_UTTERANCES = "utterances"


@dataclass(frozen=True)
class JobPart:
    """The `utterances` of a job, in the order of processing, of the data directory `data`; `tables` is the
    directory of their lines, or `data` itself."""

    data: Path
    tables: Path
    utterances: Sequence[str]

    def directory(self) -> DataDir:
        """The data directory, restricted to this part."""
        return DataDir(self.data, self.tables)


def part_of(
    data: Path,
    out: Path,
    num_jobs: int,
    job: int,
    cut: Callable[[Path, int], Sequence[Sequence[str]]] = split,
    name: str = PARTS,
) -> JobPart:
    """The part of job `job` (1-based) as written by the step; if the step wrote none, the whole directory
    with the utterances that `cut` assigns to the job."""
    place = Path(out) / name / str(job)
    if place.is_dir():
        return JobPart(data, place, Keys.by_line(Table.read(place / _UTTERANCES)))
    return JobPart(data, data, cut(data, num_jobs)[job - 1])


@contextlib.contextmanager
def parts_of_jobs(
    data: Path, out: Path, lists: Sequence[Sequence[str]], tables: Iterable[str], name: str = PARTS
) -> Iterator[None]:
    """Context in which OUT/NAME/JOB contains the tables of job JOB: of each of `tables` that `data` has, the
    lines of the utterances `lists[JOB - 1]`.

    Raises UserError if a table cannot be read.
    """
    folder = Path(out) / name
    places = [folder / str(job) for job in range(1, len(lists) + 1)]
    _remove(folder)
    try:
        for place, utterances in zip(places, lists):
            place.mkdir(parents=True)
            with (place / _UTTERANCES).open("w", encoding="utf-8") as f:
                f.writelines(f"{utt}\n" for utt in utterances)
        wanted = filter(DataDir(data).has, dict.fromkeys(("utt2spk", *tables)))
        for table, parts in _cut(
            {table: Stored(partial(_from_anywhere, data, table, out)) for table in wanted}, lists
        ):
            for lines, place in zip(parts, places):
                (place / table).write_bytes(lines)
        yield
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)


def write_parts(tables: Tables, lists: Sequence[Sequence[str]], directories: list[Path]) -> None:
    """Write the data directory of each list of utterances into the corresponding one of `directories`, which
    exist."""
    for name, parts in _cut(tables, lists):
        for lines, directory in zip(parts, directories):
            write_table(directory / name, Table(lines))
    for directory in directories:
        write_inverted(directory / "spk2utt", directory / "utt2spk")


def _cut(tables: Tables, lists: Sequence[Sequence[str]]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """(name, the lines of each part) of each table except spk2utt, in the order of the table."""
    of_utterances, num = _Utterances(lists), len(lists)
    places = dict.fromkeys(SPEAKER_TABLES, _Shared(at_hand(tables["utt2spk"]), of_utterances).places)
    if segments := tables.get("segments"):
        places |= dict.fromkeys(RECORDING_TABLES, _Shared(at_hand(segments), of_utterances).places)
    for name in (name for name in tables if name != "spk2utt"):
        yield name, _handed_out(at_hand(tables[name]), places.get(name, of_utterances.places), num)


def _handed_out(
    table: Mapping[str, str], places_of: Callable[[Table], tuple[np.ndarray, np.ndarray]], num: int
) -> Iterator[bytes]:
    """The lines of each of `num` parts; in memory are the table and the lines of one part."""
    table = table if isinstance(table, Table) else Table.of(table.items())
    lines, parts = places_of(table)
    order = np.argsort(parts, kind="stable")
    lines, borders = lines[order], np.searchsorted(parts[order], np.arange(num + 1))
    return (table.taken(lines[begin:end]) for begin, end in pairwise(borders.tolist()))


class _Utterances:
    """Which of the lists of utterances, from 0, each line of a table belongs to."""

    def __init__(self, lists: Sequence[Sequence[str]]):
        self._utterances, self._parts = _numbered(lists)

    def places(self, table: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the lines that are in a list, ascending; the list of each)"""
        has_same = isinstance(table, Table) and table.has_keys_of(self._utterances)
        parts = self._parts if has_same else np.fromiter(map(self._part, table), np.int32, len(table))
        lines = np.flatnonzero(parts >= 0)
        return lines, parts[lines]

    def _part(self, utt: str) -> int:
        line = self._utterances.line_of(utt)
        return -1 if line is None else self._parts[line]


def _numbered(lists: Sequence[Sequence[str]]) -> tuple[Table, np.ndarray]:
    """(utterances, the list of each line of this table; -1: in none of the lists)"""
    keys = [one for one in lists if isinstance(one, Keys)]
    if len(keys) == len(lists) and all(some.table is keys[0].table for some in keys):
        parts = np.full(len(keys[0].table), -1, np.int32)
        for number, some in enumerate(keys):
            parts[some.lines] = number
        return keys[0].table, parts
    pairs = sorted((utt, number) for number, one in enumerate(lists) for utt in one)
    return Table.of_keys(utt for utt, _ in pairs), np.array([number for _, number in pairs], np.int32)


class _Shared:
    """Which lists the lines of a table of speakers or recordings belong to, of which each may have utterances
    in several.

    table  {utterance: its speaker, or its recording and times}
    """

    def __init__(self, table: Mapping[str, str], of_utterances: _Utterances):
        self._names, names = distinct(value.partition(" ")[0] for value in table.values())
        lines, parts = of_utterances.places(table)
        num = int(parts.max(initial=0)) + 1
        pairs = np.unique(num * names[lines] + parts)
        self._parts = pairs % num
        self._borders = np.searchsorted(pairs, num * np.arange(len(self._names) + 1))

    def places(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of lines, ascending; the list of each): a line stands here once for each list that its key
        belongs to."""
        names = np.fromiter(
            (-1 if (line := self._names.line_of(key)) is None else line for key in table),
            np.int64,
            len(table),
        )
        known = np.flatnonzero(names >= 0)
        begins, ends = self._borders[names[known]], self._borders[names[known] + 1]
        sizes = ends - begins
        each = np.arange(sizes.sum()) + np.repeat(ends - np.cumsum(sizes), sizes)
        return np.repeat(known, sizes), self._parts[each]


def _from_anywhere(data: Path, name: str, out: Path) -> Mapping[str, str]:
    """The table `name` with paths that are valid in OUT/PARTS/JOB. They are absolute unless OUT is below the
    current directory: the base directory of relative paths is searched for among the parents of the table."""
    table = DataDir(data).utt2spk if name == "utt2spk" else DataDir(data).table(name)
    if not name.endswith(".scp") or Path.cwd() in Path(out).resolve().parents:
        return table
    return mapped(table, value=lambda entry: entry if is_command(entry) else str(Path.cwd() / entry))
