"""Integer vectors of utterances in a temporary file, from which the targets of a training are written. One
archive at a time is in memory.

with AlignmentSpool(ali_dir, tid2pdf, out / SPOOL_FILE) as spool:
    keys = join(reader, spool.lengths, max_missing, ali_dir)
    spool.check(keys)
    offsets, pieces = spool.offsets(keys), spool.vectors(keys)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.system_errors import naming
from pyasr.io.int_vectors import iterate_int_vectors, job_archive_files, read_int_vectors
from pyasr.io.keys import Keys, Numbers
from pyasr.io.tables import Table

SPOOL_FILE = "targets.npz.spool"
Spool = TypeVar("Spool", bound="VectorSpool")


class VectorSpool:
    """Vectors in a temporary file, which the end of the `with` block removes. In memory are their names and
    about 20 bytes per vector.

    path     the file, int32
    vectors  (utterance, integers) pairs

    lengths  {utterance: length of its vector}
    """

    def __init__(self, path: Path, vectors: Iterable[tuple[str, np.ndarray]]):
        self.path, self._vectors = path, vectors

    def __enter__(self: Spool) -> Spool:
        lengths = array("i")
        with naming(self.path), open(self.path, "wb") as file:
            names = Table.of_keys(_written(self._vectors, file, lengths))
        self._check_names(names)
        self._order = Keys(names).line_numbers()
        self._begins = np.append(0, np.cumsum(lengths, dtype=np.int64))
        self._names = names.in_order()
        self.lengths = self.numbers_of(lengths)
        return self

    def __exit__(self, *_) -> None:
        self.path.unlink(missing_ok=True)

    def _check_names(self, names: Table) -> None:
        """Check the names, which are in the order of the vectors, for duplicates."""

    @property
    def keys(self) -> Keys:
        """The utterances in the order of their vectors."""
        return Keys(self._names, np.argsort(self._order))

    def numbers_of(self, values: array[int]) -> Numbers[int]:
        """{utterance: value} of values in the order of the vectors."""
        return Numbers(Keys(self._names), np.asarray(values)[self._order])

    def places(self, keys: Sequence[str]) -> np.ndarray:
        """Position of the vector of each utterance among all vectors, int64 (len(keys),)."""
        return self._order[np.fromiter(map(self._names.line_of, keys), np.int64, len(keys))]

    def offsets(self, keys: Sequence[str]) -> np.ndarray:
        """Position of each utterance's vector in the concatenation of the utterances, and its length, int64
        (len(keys) + 1,)."""
        places = self.places(keys)
        return np.append(0, np.cumsum(self._begins[places + 1] - self._begins[places]))

    def vectors(self, keys: Sequence[str]) -> Iterator[np.ndarray]:
        """The vector of each utterance, int32."""
        places = self.places(keys)
        begins, ends, at = memoryview(self._begins[places]), memoryview(self._begins[places + 1]), 0
        with naming(self.path), open(self.path, "rb") as file:
            for begin, end in zip(begins, ends):
                if begin != at:
                    file.seek(4 * begin)
                yield np.frombuffer(file.read(4 * (end - begin)), np.int32)
                at = end


def _written(vectors: Iterable[tuple[str, np.ndarray]], file, lengths: array) -> Iterator[str]:
    """Write the vectors and append their lengths to `lengths`; yields their names."""
    for name, vector in vectors:
        file.write(np.ascontiguousarray(vector, np.int32))
        lengths.append(len(vector))
        yield name


class ArchiveSpool(VectorSpool):
    """Vectors computed from the alignments of a directory, one archive at a time."""

    def __init__(self, ali_dir: Path, path: Path):
        super().__init__(path, self._of_all())
        self.ali_dir, self._firsts = ali_dir, array("q")  # position of the first vector of each archive

    def _of_all(self) -> Iterator[tuple[str, np.ndarray]]:
        num_before = 0
        for archive in job_archive_files(self.ali_dir):
            self._firsts.append(num_before)
            for pair in self._converted(archive):
                num_before += 1
                yield pair

    def _converted(self, archive: Path) -> Iterator[tuple[str, np.ndarray]]:
        """The vector of each utterance of an archive, in its order."""
        raise NotImplementedError

    def _check_names(self, names: Table) -> None:
        """Raise UserError if an utterance is in several archives."""
        place = min(names.repeated(), default=None)
        if place is not None:
            archive = job_archive_files(self.ali_dir)[self._archives(place)]
            raise UserError(
                f"{archive}: {names.key(place)} is also in the archive of an earlier job; align again"
            )

    def _archives(self, places: np.ndarray | int) -> np.ndarray:
        """The number of the archive of each vector, from 0."""
        return np.searchsorted(self._firsts, places, side="right") - 1

    def alignments(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        """Transition-ids of the utterances. Each archive that contains one of them is read as a whole."""
        archives, wanted = job_archive_files(self.ali_dir), set(keys)
        found: dict[str, np.ndarray] = {}
        for number in np.unique(self._archives(self.places(keys))).tolist():
            found |= {key: tids for key, tids in read_int_vectors(archives[number]).items() if key in wanted}
        return {key: found[key] for key in keys}


class AlignmentSpool(ArchiveSpool):
    """Alignments of a directory, mapped from transition-ids to numbers.

    numbers  number of each transition-id, such as its pdf; index 0 is unused
    """

    def __init__(self, ali_dir: Path, numbers: np.ndarray, path: Path):
        super().__init__(ali_dir, path)
        self._numbers, self._are_wrong = numbers.astype(np.int32), array("b")

    def _converted(self, archive: Path) -> Iterator[tuple[str, np.ndarray]]:
        """The numbers of each utterance's transition-ids; an arbitrary number for an id that the model does
        not have."""
        for key, tids in iterate_int_vectors(archive):
            self._are_wrong.append(bool(self._wrong(tids).any()))
            yield key, self._numbers.take(tids, mode="clip")

    def _wrong(self, tids: np.ndarray) -> np.ndarray:
        return (tids < 1) | (tids >= len(self._numbers))

    def check(self, keys: Sequence[str]) -> None:
        """Raise UserError if one of the utterances has a transition-id that the model does not have."""
        wrong = np.flatnonzero(np.asarray(self._are_wrong)[self.places(keys)])
        if len(wrong):
            [tids] = self.alignments([keys[wrong[0]]]).values()
            wrong_id = tids[self._wrong(tids).argmax()]
            found = (
                f"its alignments contain transition-id {wrong_id}, but final.mdl has 1 to "
                f"{len(self._numbers) - 1}"
            )
            raise UserError(f"{self.ali_dir}: {found}; they belong to another model, align again")
