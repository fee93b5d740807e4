"""Files of a teacher's targets for the frames of a training, written once, utterance by utterance, and kept
until the training ends.

    soft = SoftTargetFiles(options, data, targets, directory, comm).of(share)
    table = soft.table(np.array([3, 17]))

Each rank computes the targets of a part of the utterances and writes its own files. If ranks train on all
utterances, the files are joined. The files are memory-mapped, so the ranks of a host share one copy.
DIRECTORY/soft_targets.K-of-N.npz, for part K of N, is the index of the utterances in

    soft_targets.K-of-N.npz.first     int64, index of each frame's first entry
    soft_targets.K-of-N.npz.entries   pdfs and weights, as in `SoftTable`

It is written last, so that incomplete files are not used. Targets in complete files of another number of
ranks are copied.
"""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.files import durable
from pyasr.base.outputs.fingerprint import fingerprint
from pyasr.base.outputs.written_digests import note_digest, open_hashed
from pyasr.base.system_errors import naming
from pyasr.io.mapped_files.arrays import load_arrays, map_numbers, save_arrays
from pyasr.nn.files import MODEL_FILE
from pyasr.parallel.communication.comm import Comm
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.rank_reader import TEACHERS_FILE, rank_reader
from pyasr.train.targets.soft_targets import SoftTable, Teacher, entry_type
from pyasr.train.training_options import TeacherOptions

_TRIED_FRAMES = 10_000  # per rank, from which the total size is estimated
_ALL = "soft_targets.*-of-*.npz"
_MB = 1e6


class SoftTargetFile:
    """The soft targets of some utterances.

    keys       utterances
    lengths    frames of each utterance, int64
    sums       sums of each utterance, see `Teacher.table`, float64 (len(keys), 4)
    num_bytes  bytes of memory for the targets of each utterance, int64
    """

    def __init__(self, path: Path, num_pdfs: int, made_by: str):
        """Raises UserError if the file is incomplete, or its `made_by` differs."""
        content = load_arrays(path, ("keys", "offsets", "sums", "made_by"))
        self.keys, self._offsets, self.sums = content["keys"].tolist(), content["offsets"], content["sums"]
        self.lengths = np.diff(self._offsets)
        numbers = {torch.int16: np.int16, torch.int32: np.int32}[entry_type(num_pdfs)]
        self._first = map_numbers(_first(path), np.int64, "r+")
        entries = map_numbers(_entries(path), numbers, "r+")
        whole = len(self._first) == self._offsets[-1] + 1 and len(entries) == 2 * self._first[-1]
        if not whole or content["made_by"] != made_by:
            raise UserError(
                f"{path}: it is damaged, or from another teacher; remove it and run the same command again"
            )
        self._entries = entries.reshape(-1, 2)
        self.num_bytes = (
            np.diff(self._first[self._offsets]) * (2 * entries.itemsize) + self.lengths * self._first.itemsize
        )

    @staticmethod
    def if_complete(path: Path, num_pdfs: int, made_by: str) -> SoftTargetFile | None:
        """The file at `path`; None if it is missing, incomplete, or from another teacher."""
        with contextlib.suppress(UserError, OSError):  # harmless: it is written again
            return SoftTargetFile(path, num_pdfs, made_by) if path.exists() else None
        return None

    def table(self, members: np.ndarray, pinned: bool = False) -> SoftTable:
        """Targets of the utterances `members` (indices into `keys`), copied to memory; memory-mapped if they
        are all utterances."""
        if len(members) == len(self.keys):
            return SoftTable(torch.from_numpy(self._first), torch.from_numpy(self._entries), on_disk=True)
        firsts = [torch.from_numpy(self._first[self._offsets[i] : self._offsets[i + 1] + 1]) for i in members]
        counts = torch.cat([torch.zeros(1, dtype=torch.int64), *(first.diff() for first in firsts)])
        entries = torch.empty(
            int(counts.sum()), 2, dtype=torch.from_numpy(self._entries).dtype, pin_memory=pinned
        )
        end = 0
        for first in firsts:
            begin, end = end, end + int(first[-1] - first[0])
            entries[begin:end] = torch.from_numpy(self._entries[first[0] : first[-1]])
        return SoftTable(counts.cumsum(0), entries)

    def utterance(self, number: int) -> tuple[SoftTable, np.ndarray]:
        """Targets and sums of utterance `number`, see `Teacher.table`."""
        return self.table(np.array([number])), self.sums[number]


class _Writer:
    """Writes the targets of the utterances `keys`, in order. PATH is created when the `with` block ends
    without an exception.

    The arrays are allocated at the beginning: small allocations between large temporary ones would fragment
    the memory.
    """

    def __init__(self, path: Path, made_by: str, keys: list[str]):
        self.path, self.made_by, self.keys, self.num_written, self.num_entries = path, made_by, keys, 0, 0
        self.offsets, self.sums = np.zeros(len(keys) + 1, np.int64), np.zeros((len(keys), 4))

    @property
    def num_bytes(self) -> int:
        """Bytes written so far."""
        return self._first.tell() + self._entries.tell()

    def __enter__(self) -> _Writer:
        with naming(self.path):
            self.path.unlink(missing_ok=True)
            self._first, self._entries = open_hashed(_first(self.path)), open_hashed(_entries(self.path))
        return self

    def write(self, table: SoftTable, sums: np.ndarray) -> None:
        """Add the next utterance."""
        with naming(self.path):
            self._first.write((table.first[:-1] + self.num_entries).numpy())
            self._entries.write(table.entries.numpy())
        self.offsets[self.num_written + 1] = self.offsets[self.num_written] + len(table.first) - 1
        self.sums[self.num_written] = sums
        self.num_written, self.num_entries = self.num_written + 1, self.num_entries + len(table.entries)

    def __exit__(self, kind, error, trace) -> None:
        # harmless: the first error is reported
        with naming(self.path) if kind is None else contextlib.suppress(OSError):
            with self._first, self._entries:
                self._first.write(np.array([self.num_entries]).tobytes())
            if kind is None:
                for path, file in ((_first(self.path), self._first), (_entries(self.path), self._entries)):
                    durable.sync(path)
                    note_digest(path, file)
                keys, made_by = np.array(self.keys, str), np.array(self.made_by)
                save_arrays(self.path, keys=keys, offsets=self.offsets, sums=self.sums, made_by=made_by)


class SoftTargetFiles:
    """Soft-target files of a training, in `directory`, for the utterances of `targets` not held out."""

    def __init__(self, options: TeacherOptions, data: Path, targets: Targets, directory: Path, comm: Comm):
        self.options = options
        self.data = data
        self.targets = targets
        self.directory = directory
        self.comm = comm
        self.made_by = f"{fingerprint(options.directory / MODEL_FILE)} {options.teacher_mass}"

    def of(self, share: tuple[int, int] | None) -> SoftTargetFile | None:
        """Targets of part k of n of the utterances, for `share` (k, n); None for None. (k, n) is either the
        rank's own part on every rank, or (0, 1) on every rank with a share. Every rank must call this."""
        comm, own = self.comm, (self.comm.rank, self.comm.size)
        in_one = comm.size > 1 and comm.reduce_scalar(share == (0, 1), "max") > 0
        wanted = (0, 1) if in_one else own
        missing = (comm.rank == 0 or not in_one) and self._complete(wanted) is None
        if comm.reduce_scalar(missing, "max"):
            comm.log(
                f"computing the targets with {self.options.teacher}, one forward pass over the training "
                "frames"
            )
            self._compute(own, in_one)
            comm.barrier()
            if in_one and comm.rank == 0:
                self._join()
            comm.barrier()
        soft = SoftTargetFile(self._path(wanted), self.targets.num_pdfs, self.made_by) if share else None
        self._log_totals(soft, in_one)
        self._remove_others([wanted] if in_one else [(rank, comm.size) for rank in range(comm.size)])
        return soft

    def _path(self, part: tuple[int, int]) -> Path:
        return self.directory / "soft_targets.{}-of-{}.npz".format(*part)

    def _open(self, path: Path) -> SoftTargetFile | None:
        return SoftTargetFile.if_complete(path, self.targets.num_pdfs, self.made_by)

    def _complete(self, part: tuple[int, int]) -> SoftTargetFile | None:
        """The file of a part, if it has all utterances of the part; else None."""
        found, keys = self._open(self._path(part)), self.targets.shard(*part, heldout=False)
        return (
            found
            if found and found.keys == keys and np.array_equal(found.lengths, self._lengths(keys))
            else None
        )

    def _compute(self, own: tuple[int, int], in_one: bool) -> None:
        """Write the file of this rank's part unless it is complete. Targets in other complete files are
        copied, the teacher computes the rest. Every rank must call this."""
        if found := self._complete(own):
            return self._estimate(found.num_bytes.sum(), found.lengths.sum(), 0, in_one)
        keys = self.targets.shard(*own, heldout=False)
        reader_of = partial(rank_reader, self.directory, targets=self.targets, keys=keys, name=TEACHERS_FILE)
        lengths = self._lengths(keys)
        teacher = Teacher(self.options, self.data, self.targets.num_pdfs, reader_of)
        with _Writer(self._path(own), self.made_by, keys) as writer:
            known = self._places(
                [path for path in sorted(self.directory.glob(_ALL)) if path != writer.path], keys
            )
            tried = int(np.searchsorted(lengths.cumsum(), _TRIED_FRAMES)) + 1
            self._add(writer, tried, known, teacher)
            self._estimate(writer.num_bytes, lengths[:tried].sum(), lengths[tried:].sum(), in_one)
            self._add(writer, len(keys), known, teacher)

    def _join(self) -> None:
        """Write the file of all utterances from the files of all ranks."""
        keys = self.targets.shard(0, 1, heldout=False)
        known = self._places([self._path((rank, self.comm.size)) for rank in range(self.comm.size)], keys)
        with _Writer(self._path((0, 1)), self.made_by, keys) as writer:
            self._add(writer, len(writer.keys), known)

    def _lengths(self, keys: list[str]) -> np.ndarray:
        """Frames of utterances, int64."""
        return np.array([len(self.targets.pdfs_of(key)) for key in keys], np.int64)

    def _places(self, paths: list[Path], keys: list[str]) -> dict[str, tuple[SoftTargetFile, int]]:
        """(file, index) of those of the utterances `keys` that are in the complete ones of these files."""
        files = [found for path in paths if (found := self._open(path))]
        lengths = dict(zip(keys, self._lengths(keys).tolist()))
        places = ((file, number, key) for file in files for number, key in enumerate(file.keys))
        return {
            key: (file, number) for file, number, key in places if lengths.get(key) == file.lengths[number]
        }

    def _add(
        self,
        writer: _Writer,
        end: int,
        known: dict[str, tuple[SoftTargetFile, int]],
        teacher: Teacher | None = None,
    ) -> None:
        """Write the utterances up to number `end`, copying `known` ones; without a teacher, all are known."""
        for key in writer.keys[writer.num_written : end]:
            if teacher is None or key in known:
                file, number = known[key]
                writer.write(*file.utterance(number))
            else:
                writer.write(*teacher.table(key, self.targets.pdfs_of(key)))

    def _estimate(self, num_bytes: float, frames: float, left: float, in_one: bool) -> None:
        """Log the estimated total size, from `num_bytes` for `frames` frames of this rank, with `left` frames
        left. Every rank must call this. Raises UserError if the disk has too little space for the rest."""
        num_bytes, frames, left = self.comm.allreduce(np.array([num_bytes, frames, left], np.float64))
        free = self.comm.reduce_scalar(shutil.disk_usage(self.directory).free, "min")
        of_frame = num_bytes / max(frames, 1)
        whole = of_frame * (frames + left)
        needed = of_frame * left + (whole if in_one else 0)
        self.comm.log(
            f"the targets of {frames + left:.0f} frames will take about {figure(whole / _MB)} MB in "
            f"{self.directory}"
        )
        if needed > free:
            found = (
                f"the teacher's targets take about {figure(needed / _MB)} MB more, {figure(free / _MB)} "
                "MB are free"
            )
            raise UserError(
                f"{self.directory}: {found}; free some space and run the same command again, or lower "
                "--teacher-mass"
            )

    def _log_totals(self, soft: SoftTargetFile | None, in_one: bool) -> None:
        """Log size and accuracy of the targets of all ranks, and the best objective of a student. Every rank
        must call this."""
        sums = np.append(soft.sums.sum(0), soft.num_bytes.sum()) if soft else np.zeros(5)
        frames, right, kept, entropy, num_bytes = self.comm.allreduce(sums, "max" if in_one else "sum")
        mass = f"{figure(kept / frames)} pdfs per frame have {self.options.teacher_mass:.0%} of the mass"
        self.comm.log(
            f"the targets of {frames:.0f} training frames take {figure(num_bytes / _MB)} MB in "
            f"{self.directory}"
        )
        self.comm.log(
            f"the teacher agrees with the alignment in {right / frames:.2%} of the training frames; {mass}; "
            f"the objective of a student with the same posteriors is {-entropy / frames:.4f}"
        )

    def _remove_others(self, parts: list[tuple[int, int]]) -> None:
        """On rank 0, remove the files of all other parts, which are no longer needed."""
        kept = {
            file
            for part in parts
            for path in [self._path(part)]
            for file in (path, _first(path), _entries(path))
        }
        for path in self.directory.glob(f"{_ALL}*") if self.comm.rank == 0 else ():
            if path not in kept:
                path.unlink()


def _first(path: Path) -> Path:
    return path.with_name(f"{path.name}.first")


def _entries(path: Path) -> Path:
    return path.with_name(f"{path.name}.entries")
