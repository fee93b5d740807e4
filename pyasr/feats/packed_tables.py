"""Locations of the features of many utterances, packed into files from which each rank of a training reads
only its own utterances.

    FeatureReader(data, options).save_tables(path, keys, lengths, cmvn)  # once; loads all tables of the data
    tables = PackedTables(path, keys, rows, row_of)                      # in each rank
    reader = FeatureReader(data, options, tables=tables)

The files contain rows of `pyasr.io.mapped_files.packed_rows`, next to PATH, which is written last:

    PATH.places    per utterance: the rest after the archive's name in feats.scp, such as :1234
    PATH.numbers   per utterance, int32: number of frames, speaker, archive
    PATH.speakers  per speaker: the name and, with statistics in cmvn.scp, their archive and place
    PATH.archives  names of archives, relative to the directory that PATH contains
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from pyasr.io.ark import archive_of
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays
from pyasr.io.mapped_files.packed_rows import read_numbers, read_rows, save_numbers, save_rows

T = TypeVar("T")
_PLACES, _NUMBERS, _SPEAKERS, _ARCHIVES = "places", "numbers", "speakers", "archives"


class _Numbered:
    """Assigns numbers to texts in the order of their first occurrence."""

    def __init__(self):
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))


def save_tables(
    path: Path,
    keys: Sequence[str],
    places: Mapping[str, str],
    speakers: Mapping[str, str],
    num_frames: Iterable[int],
    cmvn: Mapping[str, str],
    columns: int,
) -> None:
    """Write the tables of a `FeatureReader` for the utterances `keys`.

    places, cmvn  extended filenames of the features of utterances and, if needed, of the statistics of
                  speakers
    columns       number of columns of the stored features
    """
    names, archives = _Numbered(), _Numbered()
    numbers = (
        (num, names(speakers.get(key, "")), archives(archive_of(places.get(key, ""))))
        for key, num in zip(keys, num_frames)
    )
    save_numbers(_part(path, _NUMBERS), numbers, 3)
    save_rows(_part(path, _PLACES), (_rest(places.get(key, "")) for key in keys))
    of_speakers = (
        f"{name} {archives(archive_of(rx))} {_rest(rx)}" if (rx := cmvn.get(name)) else name
        for name in names.known
    )
    save_rows(_part(path, _SPEAKERS), of_speakers)
    save_rows(_part(path, _ARCHIVES), archives.known)
    save_arrays(path, columns=np.array(columns), directory=np.array(str(Path.cwd())))


def are_valid(path: Path) -> bool:
    """Whether there are tables whose archive names are relative to the current directory."""
    return Path(path).exists() and str(load_arrays(path, ("directory",))["directory"]) == str(Path.cwd())


class PackedTables:
    """The tables of some utterances of the files.

    keys                 all utterances of the files
    columns              number of columns of the stored features
    places, speakers     {utterance: extended filename of its features}, {utterance: speaker}
    num_frames           {utterance: number of frames}
    cmvn                 {speaker: extended filename of the statistics}

    rows    indices in `keys` of the selected utterances, int64 (n,), ascending
    row_of  returns the index of an utterance; raises KeyError for others
    """

    def __init__(self, path: Path, keys: Sequence[str], rows: np.ndarray, row_of: Callable[[str], int]):
        self.keys, self.columns = keys, int(load_arrays(path, ("columns",))["columns"])
        self._rows, self._row_of = rows, row_of
        self._places = read_rows(_part(path, _PLACES), rows)
        self._numbers = read_numbers(_part(path, _NUMBERS), rows, 3)
        self._speakers = _Chosen(_part(path, _SPEAKERS), self._numbers[:, 1])
        self._statistics = dict(text.split(" ", 1) for text in self._speakers.rows if " " in text)
        of_speakers = [int(text.partition(" ")[0]) for text in self._statistics.values()]
        self._archives = _Chosen(
            _part(path, _ARCHIVES), np.concatenate([self._numbers[:, 2], np.array(of_speakers, np.int64)])
        )
        self.places, self.speakers = _Column(self._place, keys), _Column(self._speaker, keys)
        self.num_frames = _Column(lambda key: int(self._numbers[self._number(key), 0]), keys)
        self.cmvn = _Column(self._place_of_statistics, self._statistics)

    def _number(self, key: str) -> int:
        """The index of an utterance among the selected ones."""
        row = self._row_of(key)
        number = int(np.searchsorted(self._rows, row))
        if number == len(self._rows) or self._rows[number] != row:
            raise KeyError(key)
        return number

    def _place(self, key: str) -> str:
        number = self._number(key)
        return _known(key, self._archives[self._numbers[number, 2]] + self._places[number])

    def _speaker(self, key: str) -> str:
        return _known(key, self._speakers[self._numbers[self._number(key), 1]].partition(" ")[0])

    def _place_of_statistics(self, speaker: str) -> str:
        archive, _, rest = self._statistics[speaker].partition(" ")
        return self._archives[int(archive)] + rest


class _Chosen:
    """The rows of a file with these `numbers`, by number."""

    def __init__(self, path: Path, numbers: np.ndarray):
        self._numbers = np.unique(numbers).astype(np.int64)
        self.rows = read_rows(path, self._numbers)

    def __getitem__(self, number: int) -> str:
        return self.rows[int(np.searchsorted(self._numbers, number))]


class _Column(Mapping[str, T]):
    """One of the tables."""

    def __init__(self, value_of: Callable[[str], T], keys: Collection[str]):
        self._value_of, self._keys = value_of, keys

    def __getitem__(self, key: str) -> T:
        return self._value_of(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _known(key: str, value: str) -> str:
    if not value:
        raise KeyError(key)
    return value


def _rest(rx: str) -> str:
    """The rest after the archive's name."""
    return rx[len(archive_of(rx)) :]


def _part(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}")
