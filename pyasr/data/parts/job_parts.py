"""Parts of a data directory for jobs: the step writes them once, so that each job reads only the lines of its own utterances.

    with parts_of_jobs(data, out, split(data, nj), tables=("utt2spk", "feats.scp")):     # the step: OUT/.data_parts/JOB
        run_jobs(...)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)                              # the job
    part.utterances, part.directory().utt2spk

The parts are in the scratch directory of the step, separate from those of other steps, and are removed when its jobs have ended. Messages
of the jobs name the data directory itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.files.pipes import is_command
from pyasr.base.files.places import remove_tree
from pyasr.data.tables.datadir import RECORDING_TABLES, SPEAKER_TABLES, DataDir, Tables, split
from pyasr.io.keys import Keys, distinct
from pyasr.io.lazy_tables import at_hand, mapped
from pyasr.io.tables import Parsed, Table
from pyasr.io.text_tables import invert, write_table

PARTS = ".data_parts"
_UTTERANCES = "utterances"


@dataclass(frozen=True)
class JobPart:
    """The `utterances` of a job, in the order of processing, of the data directory `data`; `tables` is the directory of their lines, or
    `data` itself."""

    data: Path
    tables: Path
    utterances: Sequence[str]

    def directory(self) -> DataDir:
        """The data directory, restricted to this part."""
        return DataDir(self.data, self.tables)


def part_of(data: Path, out: Path, num_jobs: int, job: int, cut: Callable[[Path, int], list[Sequence[str]]] = split,
            name: str = PARTS) -> JobPart:  # fmt: skip
    """The part of job `job` (1-based) as written by the step; if the step wrote none, the whole directory with the utterances that `cut`
    assigns to the job."""
    place = Path(out) / name / str(job)
    if place.is_dir():
        return JobPart(data, place, Keys.by_line(Table.read(place / _UTTERANCES)))
    return JobPart(data, data, cut(data, num_jobs)[job - 1])


@contextlib.contextmanager
def parts_of_jobs(data: Path, out: Path, lists: list[Sequence[str]], tables: Iterable[str], name: str = PARTS) -> Iterator[None]:
    """In the block, OUT/NAME/JOB has the lines of the utterances `lists[JOB - 1]` in those of `tables` that `data` has.

    Raises UserError if a table cannot be read.
    """
    directory, folder = DataDir(data), Path(out) / name
    places = [folder / str(job) for job in range(1, len(lists) + 1)]
    _remove(folder)
    try:
        for place, utterances in zip(places, lists):
            place.mkdir(parents=True)
            with (place / _UTTERANCES).open("w", encoding="utf-8") as f:
                f.writelines(f"{utt}\n" for utt in utterances)
        wanted = [table for table in dict.fromkeys(("utt2spk", *tables)) if directory.has(table)]
        for table, parts in _cut({table: _from_anywhere(directory, table, out) for table in wanted}, lists):
            for place, lines in zip(places, parts):
                (place / table).write_bytes(lines)
        yield
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)


def write_parts(tables: Tables, lists: list[Sequence[str]], directories: list[Path]) -> None:
    """Write the data directory of each list of utterances into the corresponding one of `directories`, which exist."""
    for name, parts in _cut(tables, lists):
        for directory, lines in zip(directories, parts):
            write_table(directory / name, Table(bytes(lines)))
            lines.clear()
    for directory in directories:
        write_table(directory / "spk2utt", invert(Table.read(directory / "utt2spk")))


def _cut(tables: Tables, lists: list[Sequence[str]]) -> Iterator[tuple[str, list[bytearray]]]:
    """(name, the lines of each part) of each table except spk2utt, in the order of the table."""
    parts_of, num = _parts_by_line(lists), len(lists)
    shared = dict.fromkeys(SPEAKER_TABLES, _Shared(at_hand(tables["utt2spk"]), parts_of, num))
    if segments := tables.get("segments"):
        shared |= dict.fromkeys(RECORDING_TABLES, _Shared(Parsed(at_hand(segments), lambda line: line.split()[0]), parts_of, num))
    for name in (name for name in tables if name != "spk2utt"):
        table = at_hand(tables[name])
        yield name, shared[name].share_out(table) if name in shared else _hand_out(table, parts_of(table), num)


def _parts_by_line(lists: list[Sequence[str]]) -> Callable[[Mapping[str, object]], np.ndarray]:
    """A function that returns the part of each line of a table of utterances, int32 (number of lines,); -1: in none of the lists."""
    utterances, parts = _numbered(lists)

    def part(utt: str) -> int:
        line = utterances.line_of(utt)
        return -1 if line is None else parts[line]

    def of_lines(table: Mapping[str, object]) -> np.ndarray:
        has_same = isinstance(table, Table) and table.has_keys_of(utterances)
        return parts if has_same else np.fromiter(map(part, table), np.int32)

    return of_lines


def _numbered(lists: list[Sequence[str]]) -> tuple[Table, np.ndarray]:
    """(utterances, the list of each line of this table; -1: in none of the lists)"""
    if all(isinstance(one, Keys) and one.table is lists[0].table for one in lists):
        parts = np.full(len(lists[0].table), -1, np.int32)
        for number, one in enumerate(lists):
            parts[one.lines] = number
        return lists[0].table, parts
    pairs = sorted((utt, number) for number, one in enumerate(lists) for utt in one)
    return Table.of_keys(utt for utt, _ in pairs), np.array([number for _, number in pairs], np.int32)


def _hand_out(table: Mapping[str, str], parts: np.ndarray, num: int) -> list[bytearray]:
    """The lines of each of `num` parts; `parts` (number of lines,) is the part of each line, -1 for none."""
    lines = [bytearray() for _ in range(num)]
    for line, part in zip(_lines_of(table), memoryview(parts)):
        if part >= 0:
            lines[part] += line
    return lines


def _lines_of(table: Mapping[str, str]) -> Iterator[bytes]:
    """The lines of a table, with their line breaks."""
    return (table if isinstance(table, Table) else Table.of(table.items())).byte_lines()


class _Shared:
    """Speakers or recordings, which may have utterances in several of `num` parts.

    table     {utterance: its speaker or recording}
    parts_of  function of a table, from `_parts_by_line`
    """

    def __init__(self, table: Mapping[str, str], parts_of: Callable[[Mapping[str, str]], np.ndarray], num: int):
        self._num, (self._names, lines), parts = num, distinct(table.values()), parts_of(table)
        pairs = np.unique(num * lines[parts >= 0] + parts[parts >= 0])
        self._parts, self._borders = memoryview(pairs % num), memoryview(np.searchsorted(pairs, num * np.arange(len(self._names) + 1)))

    def share_out(self, table: Mapping[str, str]) -> list[bytearray]:
        """The lines of each part; a line is in all parts that have utterances of its key."""
        lines = [bytearray() for _ in range(self._num)]
        for key, line in zip(table, _lines_of(table)):
            for part in self._parts_of(key):
                lines[part] += line
        return lines

    def _parts_of(self, key: str) -> Sequence[int]:
        line = self._names.line_of(key)
        return () if line is None else self._parts[self._borders[line] : self._borders[line + 1]]


def _from_anywhere(data: DataDir, name: str, out: Path) -> Mapping[str, str]:
    """The table `name` with paths that are valid in OUT/PARTS/JOB. They are absolute unless OUT is below the current directory: the base
    directory of relative paths is searched for among the parents of the table."""
    table = data.utt2spk if name == "utt2spk" else data.table(name)
    if not name.endswith(".scp") or Path.cwd() in Path(out).resolve().parents:
        return table
    return mapped(table, value=lambda entry: entry if is_command(entry) else str(Path.cwd() / entry))
