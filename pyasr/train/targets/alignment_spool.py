"""Alignments of a directory, read one archive at a time and converted to training targets.

    with AlignmentSpool(ali_dir, tid2pdf, out / SPOOL_FILE) as spool:
        keys = join(reader, spool.frames, max_missing, ali_dir)
        spool.check(keys)
        offsets, pieces = spool.offsets(keys), spool.targets(keys)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.system_errors import naming
from pyasr.io.int_vectors import check_new, job_archive_files, read_int_vectors

SPOOL_FILE = "targets.npz.spool"


class AlignmentSpool:
    """Alignments of a directory, mapped from transition-ids to numbers, in a temporary file. The end of the `with` block removes the file.

    frames   {utterance: range of its frames}, of all archives

    numbers  number of each transition-id, such as its pdf; index 0 is unused
    path     temporary file of int32 numbers, in the order of the archives
    """

    def __init__(self, ali_dir: Path, numbers: np.ndarray, path: Path):
        self.ali_dir, self.path, self._numbers = ali_dir, path, numbers.astype(np.int32)
        self.frames: dict[str, range] = {}
        self._begins: dict[str, int] = {}
        self._archives: dict[Path, int] = {}  # position of its first frame in the file
        self._wrong: dict[str, int] = {}

    def __enter__(self) -> AlignmentSpool:
        begin = 0
        with naming(self.path), open(self.path, "wb") as file:
            for archive in job_archive_files(self.ali_dir):
                self._archives[archive], vectors = begin, read_int_vectors(archive)
                check_new(archive, vectors, self.frames)
                for key, tids in vectors.items():
                    self._begins[key], self.frames[key] = begin, range(len(tids))
                    file.write(self._numbered(key, tids))
                    begin += len(tids)
        return self

    def __exit__(self, *_) -> None:
        self.path.unlink(missing_ok=True)

    def _numbered(self, key: str, tids: np.ndarray) -> np.ndarray:
        """The numbers of an utterance's transition-ids; an arbitrary number for an id that the model does not have."""
        wrong = (tids < 1) | (tids >= len(self._numbers))
        if wrong.any():
            self._wrong[key] = int(tids[wrong.argmax()])
        return self._numbers.take(tids, mode="clip")

    def check(self, keys: Sequence[str]) -> None:
        """Raise UserError if one of the utterances has a transition-id that the model does not have."""
        key = next((key for key in keys if key in self._wrong), None) if self._wrong else None
        if key is not None:
            found = f"its alignments contain transition-id {self._wrong[key]}, but final.mdl has 1 to {len(self._numbers) - 1}"
            raise UserError(f"{self.ali_dir}: {found}; they belong to another model, align again")

    def offsets(self, keys: Sequence[str]) -> np.ndarray:
        """Position of the first frame of each utterance in their concatenation, and its length, int64 (len(keys) + 1,)."""
        return np.cumsum([0, *(len(self.frames[key]) for key in keys)], dtype=np.int64)

    def targets(self, keys: Sequence[str]) -> Iterator[np.ndarray]:
        """The numbers of each utterance, int32."""
        with naming(self.path), open(self.path, "rb") as file:
            place = 0
            for key in keys:
                begin, number = self._begins[key], len(self.frames[key])
                if begin != place:
                    file.seek(4 * begin)
                yield np.frombuffer(file.read(4 * number), np.int32)
                place = begin + number

    def alignments(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        """Transition-ids of the utterances. Each archive that contains one of them is read as a whole."""
        archives, begins = list(self._archives), np.array(list(self._archives.values()))
        numbers = {int(np.searchsorted(begins, self._begins[key], side="right")) - 1 for key in keys}
        found = {}
        for number in sorted(numbers):
            found |= {key: tids for key, tids in read_int_vectors(archives[number]).items() if key in keys}
        return {key: found[key] for key in keys}
