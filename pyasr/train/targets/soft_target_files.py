"""What a teacher says of the frames of a training, written once, utterance by utterance, and kept on disk for as long as that takes.

    soft = SoftTargetFiles(options, data, targets, directory, comm).of(share)
    table = soft.table(np.array([3, 17]))

Each rank has the teacher look at a part of the utterances, and writes a file of its own; where all ranks learn from all utterances, the
files become one. Ranks of a host share the system's memory for a file. DIRECTORY/soft_targets.K-of-N.npz, of the K-th of N parts, is
written last and says which utterances lie where in the files beside it,

    soft_targets.K-of-N.npz.first     int64, where each frame's entries begin
    soft_targets.K-of-N.npz.entries   pdfs and weights, as in `SoftTable`

so that a file that was written halfway is not trusted. What complete ones hold of other numbers of ranks is copied.
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
from pyasr.io.arrays import load_arrays, map_numbers, save_arrays
from pyasr.nn.files import MODEL_FILE
from pyasr.parallel.communication.comm import Comm
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.rank_reader import TEACHERS_FILE, rank_reader
from pyasr.train.targets.soft_targets import SoftTable, Teacher, entry_type
from pyasr.train.training_options import TeacherOptions

_TRIED_FRAMES = 10_000  # of each rank, by which the size of all is estimated
_ALL = "soft_targets.*-of-*.npz"
_MB = 1e6


class SoftTargetFile:
    """The soft targets of some utterances.

    keys       utterances
    lengths    frames of each, int64
    sums       of each as of `Teacher.table`, float64 (len(keys), 4)
    num_bytes  of memory that the targets of each take, int64
    """

    def __init__(self, path: Path, num_pdfs: int, made_by: str):
        """Raises UserError where it is not complete, or `made_by` something else."""
        content = load_arrays(path, ("keys", "offsets", "sums", "made_by"))
        self.keys, self._offsets, self.sums = content["keys"].tolist(), content["offsets"], content["sums"]
        self.lengths, numbers = np.diff(self._offsets), {torch.int16: np.int16, torch.int32: np.int32}[entry_type(num_pdfs)]
        self._first, entries = map_numbers(_first(path), np.int64, "r+"), map_numbers(_entries(path), numbers, "r+")
        whole = len(self._first) == self._offsets[-1] + 1 and len(entries) == 2 * self._first[-1]
        if not whole or content["made_by"] != made_by:
            raise UserError(f"{path}: it is damaged, or of another teacher; remove it, and run the same command again")
        self._entries = entries.reshape(-1, 2)
        self.num_bytes = np.diff(self._first[self._offsets]) * (2 * entries.itemsize) + self.lengths * self._first.itemsize

    @staticmethod
    def if_complete(path: Path, num_pdfs: int, made_by: str) -> SoftTargetFile | None:
        """None where there is no such file, or it is of no use."""
        with contextlib.suppress(UserError, OSError):  # harmless: it is made again
            return SoftTargetFile(path, num_pdfs, made_by) if path.exists() else None

    def table(self, members: np.ndarray, pinned: bool = False) -> SoftTable:
        """Of the utterances `members` (indices into `keys`), in memory; of all of them on disk."""
        if len(members) == len(self.keys):
            return SoftTable(torch.from_numpy(self._first), torch.from_numpy(self._entries), on_disk=True)
        firsts = [torch.from_numpy(self._first[self._offsets[i] : self._offsets[i + 1] + 1]) for i in members]
        counts = torch.cat([torch.zeros(1, dtype=torch.int64), *(first.diff() for first in firsts)])
        entries = torch.empty(int(counts.sum()), 2, dtype=torch.from_numpy(self._entries).dtype, pin_memory=pinned)
        end = 0
        for first in firsts:
            begin, end = end, end + int(first[-1] - first[0])
            entries[begin:end] = torch.from_numpy(self._entries[first[0] : first[-1]])
        return SoftTable(counts.cumsum(0), entries)

    def utterance(self, number: int) -> tuple[SoftTable, np.ndarray]:
        """As of `Teacher.table`."""
        return self.table(np.array([number])), self.sums[number]


class _Writer:
    """Writes the file of the utterances `keys`, one after the other; PATH appears when the `with` block ends without an exception.

    What is kept of each has its place from the beginning: small pieces of memory among the large ones that come and go would make the
    process grow.
    """

    def __init__(self, path: Path, made_by: str, keys: list[str]):
        self.path, self.made_by, self.keys, self.num_written, self.num_entries = path, made_by, keys, 0, 0
        self.offsets, self.sums = np.zeros(len(keys) + 1, np.int64), np.zeros((len(keys), 4))

    @property
    def num_bytes(self) -> int:
        """Of what is written."""
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
        with naming(self.path) if kind is None else contextlib.suppress(OSError):  # harmless: the first error is the one to tell
            with self._first, self._entries:
                self._first.write(np.array([self.num_entries]))
            if kind is None:
                for path, file in ((_first(self.path), self._first), (_entries(self.path), self._entries)):
                    durable.sync(path)
                    note_digest(path, file)
                keys, made_by = np.array(self.keys, str), np.array(self.made_by)
                save_arrays(self.path, keys=keys, offsets=self.offsets, sums=self.sums, made_by=made_by)


class SoftTargetFiles:
    """Those of a training in `directory`, of the utterances of `targets` that are not held out."""

    def __init__(self, options: TeacherOptions, data: Path, targets: Targets, directory: Path, comm: Comm):
        self.options, self.data, self.targets, self.directory, self.comm = options, data, targets, directory, comm
        self.made_by = f"{fingerprint(options.teacher / MODEL_FILE)} {options.teacher_mass}"

    def of(self, share: tuple[int, int] | None) -> SoftTargetFile | None:
        """The targets of the k-th of n parts of the utterances, (k, n); None of nothing. (k, n) is the rank's own part, or (0, 1) on all
        that have any. Every rank must call this."""
        comm, own = self.comm, (self.comm.rank, self.comm.size)
        in_one = comm.size > 1 and comm.reduce_scalar(share == (0, 1), "max") > 0
        wanted = (0, 1) if in_one else own
        missing = (comm.rank == 0 or not in_one) and self._complete(wanted) is None
        if comm.reduce_scalar(missing, "max"):
            comm.say(f"{self.options.teacher} looks at the training frames, which takes as long as to compute its scores of them")
            self._look(own, in_one)
            comm.barrier()
            if in_one and comm.rank == 0:
                self._join()
            comm.barrier()
        soft = SoftTargetFile(self._path(wanted), self.targets.num_pdfs, self.made_by) if share else None
        self._tell(soft, in_one)
        self._remove_others([wanted] if in_one else [(rank, comm.size) for rank in range(comm.size)])
        return soft

    def _path(self, part: tuple[int, int]) -> Path:
        return self.directory / "soft_targets.{}-of-{}.npz".format(*part)

    def _open(self, path: Path) -> SoftTargetFile | None:
        return SoftTargetFile.if_complete(path, self.targets.num_pdfs, self.made_by)

    def _complete(self, part: tuple[int, int]) -> SoftTargetFile | None:
        """The file of a part, if it has all utterances of it."""
        found, keys = self._open(self._path(part)), self.targets.shard(*part, heldout=False)
        return found if found and found.keys == keys and np.array_equal(found.lengths, self._lengths(keys)) else None

    def _look(self, own: tuple[int, int], in_one: bool) -> None:
        """Write the file of this rank's part, unless it is complete, as far as others do not have it by what the teacher says. Every rank
        must call this."""
        if found := self._complete(own):
            return self._estimate(found.num_bytes.sum(), found.lengths.sum(), 0, in_one)
        keys = self.targets.shard(*own, heldout=False)
        reader_of = partial(rank_reader, self.directory, targets=self.targets, keys=keys, name=TEACHERS_FILE)
        lengths, teacher = self._lengths(keys), Teacher(self.options, self.data, self.targets.num_pdfs, reader_of)
        with _Writer(self._path(own), self.made_by, keys) as writer:
            known = self._places([path for path in sorted(self.directory.glob(_ALL)) if path != writer.path], keys)
            tried = int(np.searchsorted(lengths.cumsum(), _TRIED_FRAMES)) + 1
            self._add(writer, tried, known, teacher)
            self._estimate(writer.num_bytes, lengths[:tried].sum(), lengths[tried:].sum(), in_one)
            self._add(writer, len(keys), known, teacher)

    def _join(self) -> None:
        """Write the file of all utterances, of those of all ranks."""
        keys = self.targets.shard(0, 1, heldout=False)
        known = self._places([self._path((rank, self.comm.size)) for rank in range(self.comm.size)], keys)
        with _Writer(self._path((0, 1)), self.made_by, keys) as writer:
            self._add(writer, len(writer.keys), known)

    def _lengths(self, keys: list[str]) -> np.ndarray:
        """Frames of utterances, int64."""
        return np.array([len(self.targets.pdfs_of(key)) for key in keys], np.int64)

    def _places(self, paths: list[Path], keys: list[str]) -> dict[str, tuple[SoftTargetFile, int]]:
        """Where which of the utterances `keys` lie in the complete ones of these files."""
        files, lengths = [found for path in paths if (found := self._open(path))], dict(zip(keys, self._lengths(keys).tolist()))
        found = ((file, number, key) for file in files for number, key in enumerate(file.keys))
        return {key: (file, number) for file, number, key in found if lengths.get(key) == file.lengths[number]}

    def _add(self, writer: _Writer, end: int, known: dict[str, tuple[SoftTargetFile, int]], teacher: Teacher | None = None) -> None:
        """Write all utterances up to number `end`."""
        for key in writer.keys[writer.num_written : end]:
            file, number = known.get(key, (None, 0))
            writer.write(*(file.utterance(number) if file else teacher.table(key, self.targets.pdfs_of(key))))

    def _estimate(self, num_bytes: float, frames: float, left: float, in_one: bool) -> None:
        """Log what all takes, by what these frames of this rank take. Every rank must call this. Raises UserError where the disk has not
        room for what is left."""
        num_bytes, frames, left = self.comm.allreduce(np.array([num_bytes, frames, left], np.float64))
        free, of_frame = self.comm.reduce_scalar(shutil.disk_usage(self.directory).free, "min"), num_bytes / max(frames, 1)
        whole = of_frame * (frames + left)
        needed = of_frame * left + (whole if in_one else 0)
        self.comm.say(f"what it says of {frames + left:.0f} frames takes about {figure(whole / _MB)} MB in {self.directory}")
        if needed > free:
            found = f"what the teacher says takes about {figure(needed / _MB)} MB more, {figure(free / _MB)} MB are free"
            raise UserError(f"{self.directory}: {found}; free some space and run the same command again, or lower --teacher-mass")

    def _tell(self, soft: SoftTargetFile | None, in_one: bool) -> None:
        """Log what the teacher has said of the frames of all ranks, and what a student can reach. Every rank must call this."""
        sums = np.append(soft.sums.sum(0), soft.num_bytes.sum()) if soft else np.zeros(5)
        frames, right, kept, entropy, num_bytes = self.comm.allreduce(sums, "max" if in_one else "sum")
        said = f"{figure(kept / frames)} pdfs a frame have {self.options.teacher_mass:.0%} of the mass"
        self.comm.say(f"the targets of {frames:.0f} training frames take {figure(num_bytes / _MB)} MB in {self.directory}")
        self.comm.say(f"the teacher agrees with the alignment in {right / frames:.2%} of the training frames; {said}; "
                      f"the objective of a student that says the same is {-entropy / frames:.4f}")  # fmt: skip

    def _remove_others(self, parts: list[tuple[int, int]]) -> None:
        """Have rank 0 remove the files of all other parts, which nobody needs any more."""
        kept = {file for part in parts for path in [self._path(part)] for file in (path, _first(path), _entries(path))}
        for path in self.directory.glob(f"{_ALL}*") if self.comm.rank == 0 else ():
            if path not in kept:
                path.unlink()


def _first(path: Path) -> Path:
    return path.with_name(f"{path.name}.first")


def _entries(path: Path) -> Path:
    return path.with_name(f"{path.name}.entries")
