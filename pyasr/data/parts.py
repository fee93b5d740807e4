"""The parts of a data directory that jobs work on: made once by the step, so that a job reads the lines of its own utterances alone.

    with parts_of_jobs(data, out, split(data, nj), tables=("utt2spk", "feats.scp")):     # the step: OUT/.data_parts/JOB
        run_jobs(...)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)                              # the job
    part.utterances, part.directory().utt2spk

They lie in the step's own scratch directory, apart from those of other steps, and are removed when its jobs have ended. Messages of the
jobs name the data directory itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.pipes import is_command
from pyasr.base.places import remove_tree
from pyasr.data.datadir import RECORDING_TABLES, SPEAKER_TABLES, DataDir, Tables, split
from pyasr.io.tables import Table, mapped
from pyasr.io.text import invert, read_lines, write_table

PARTS = ".data_parts"
_UTTERANCES = "utterances"


@dataclass(frozen=True)
class Part:
    """The `utterances` of a job, in its order, of the data directory `data`; `tables` is the directory that has the lines of these, or
    `data` itself."""

    data: Path
    tables: Path
    utterances: list[str]

    def directory(self) -> DataDir:
        """The data directory, as far as this part goes."""
        return DataDir(self.data, self.tables)


def part_of(data: Path, out: Path, num_jobs: int, job: int, cut: Callable[[Path, int], list[list[str]]] = split, name: str = PARTS) -> Part:
    """The part of job `job` (1-based), as the step has made it; where it has not, the whole directory with the utterances that `cut` gives
    the job."""
    place = Path(out) / name / str(job)
    if place.is_dir():
        return Part(data, place, read_lines(place / _UTTERANCES))
    return Part(data, data, cut(data, num_jobs)[job - 1])


@contextlib.contextmanager
def parts_of_jobs(data: Path, out: Path, lists: list[list[str]], tables: Iterable[str], name: str = PARTS) -> Iterator[None]:
    """In the block, OUT/NAME/JOB has the lines of the utterances `lists[JOB - 1]` in those of these tables that `data` has.

    Raises UserError where one of them cannot be read.
    """
    directory, folder = DataDir(data), Path(out) / name
    places = [folder / str(job) for job in range(1, len(lists) + 1)]
    _remove(folder)
    try:
        for place, utterances in zip(places, lists):
            place.mkdir(parents=True)
            (place / _UTTERANCES).write_text("".join(f"{utt}\n" for utt in utterances), encoding="utf-8")
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


def write_parts(tables: Tables, lists: list[list[str]], directories: list[Path]) -> None:
    """Write the data directory of each list of utterances into one of these directories, which exist."""
    for name, parts in _cut(tables, lists):
        for directory, lines in zip(directories, parts):
            write_table(directory / name, Table(bytes(lines)))
    for directory in directories:
        write_table(directory / "spk2utt", invert(Table.read(directory / "utt2spk")))


def _cut(tables: Tables, lists: list[list[str]]) -> Iterator[tuple[str, list[bytearray]]]:
    """(name, the lines of each part) of each table but spk2utt, in the table's order."""
    utterances = {utt: number for number, utterances in enumerate(lists) for utt in utterances}
    speakers = _parts_by(tables["utt2spk"].items(), utterances)
    segments = tables.get("segments")
    recordings = _parts_by(((utt, line.split()[0]) for utt, line in segments.items()), utterances) if segments else None
    for name, table in tables.items():
        lines = [bytearray() for _ in lists]
        if name in SPEAKER_TABLES or name in RECORDING_TABLES and recordings is not None:
            _share_out(table, speakers if name in SPEAKER_TABLES else recordings, lines)
        else:
            _hand_out(table, utterances, lines)
        if name != "spk2utt":
            yield name, lines


def _parts_by(items: Iterable[tuple[str, str]], utterances: dict[str, int]) -> dict[str, set[int]]:
    """{speaker: the parts that its utterances are in} of (utterance, speaker) pairs; the same of recordings."""
    found: dict[str, set[int]] = {}
    for utt, key in items:
        if (number := utterances.get(utt)) is not None:
            found.setdefault(key, set()).add(number)
    return found


def _hand_out(table: Mapping[str, str], numbers: dict[str, int], lines: list[bytearray]) -> None:
    """Add each line to those of the part that its key belongs to."""
    for key, value in table.items():
        if (number := numbers.get(key)) is not None:
            lines[number] += f"{key} {value}\n".encode() if value else f"{key}\n".encode()


def _share_out(table: Mapping[str, str], numbers: dict[str, set[int]], lines: list[bytearray]) -> None:
    """Add each line to those of all parts that its key belongs to."""
    for key, value in table.items():
        for number in numbers.get(key, ()):
            lines[number] += f"{key} {value}\n".encode() if value else f"{key}\n".encode()


def _from_anywhere(data: DataDir, name: str, out: Path) -> Mapping[str, str]:
    """A table whose paths are valid where OUT/PARTS/JOB/NAME is read: absolute where OUT does not lie below the current directory, above
    which the directory of relative paths would be looked for."""
    table = data.utt2spk if name == "utt2spk" else data.table(name)
    if not name.endswith(".scp") or Path.cwd() in Path(out).resolve().parents:
        return table
    return mapped(table, value=lambda entry: entry if is_command(entry) else str(Path.cwd() / entry))
