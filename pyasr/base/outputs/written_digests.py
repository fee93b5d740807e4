"""Digests of an output's files, computed while they are written, so that the step need not read the files
again at its end.

    in a job:    with open_hashed(path) as f: ...
                 note_digest(path, f)
    in the step: file_states(scratch, noted_digests(scratch))

Each process appends to its own file below the log directory of the output that is being written. A digest is
valid for the file with the recorded inode, size and time of the last change; all other files are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
from pathlib import Path

from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.displaced_files import STARTED
from pyasr.base.outputs.fingerprint import digest_of, is_hashed_as_a_whole

_FOLDER = Path("log") / ".digests"
_NOTE = re.compile(rb"(?m)^(\d+) (\d+) (\d+) ([0-9a-f]{64})$")
_MIN_BYTES = 1 << 16  # smaller files are read as fast as their recorded digests


class HashingFile(io.FileIO):
    """A file opened for writing that computes the digest of the written bytes."""

    def __init__(self, path: Path):
        super().__init__(path, "wb")
        self._digest, self._num_bytes, self._in_order = hashlib.sha256(), 0, True

    def write(self, data) -> int:
        """Write bytes; the number of bytes written."""
        written = super().write(data)
        if is_hashed_as_a_whole(self._num_bytes):
            self._digest.update(memoryview(data).cast("B")[:written])
        self._num_bytes += written
        return written

    def seek(self, *place) -> int:
        """Move to another position; the digest is then computed from the finished file."""
        self._in_order = False
        return super().seek(*place)

    def digest(self, num_bytes: int) -> str | None:
        """Digest of a file of this size; None if the file was not written sequentially by this object, or if
        its digest is sampled."""
        is_known = self._in_order and self._num_bytes == num_bytes and is_hashed_as_a_whole(num_bytes)
        return self._digest.hexdigest() if is_known else None


def open_hashed(path: Path) -> io.BufferedWriter:
    """Open a file for writing in binary mode, with a digest."""
    return io.BufferedWriter(HashingFile(path))


def note_digest(path: Path, written: io.BufferedWriter) -> None:
    """Record the digest of a closed file, which may have been renamed to `path`, for the step whose output
    contains it."""
    stat = path.stat()
    if stat.st_size < _MIN_BYTES or not (output := _enclosing_output(path)):
        return
    assert isinstance(written.raw, HashingFile)  # of open_hashed
    digest = written.raw.digest(stat.st_size) or digest_of(path)
    with contextlib.suppress(OSError):  # harmless: the step reads the file
        (output / _FOLDER).mkdir(parents=True, exist_ok=True)
        with (output / _FOLDER / f"{os.uname().nodename}.{os.getpid()}").open("a", encoding="ascii") as f:
            f.write(f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {digest}\n")


def noted_digests(output: Path) -> dict[tuple[int, int, int], str]:
    """Recorded digests {(inode, bytes, time of the last change in ns): digest} of an output in progress."""
    notes = [note for file in (Path(output) / _FOLDER).glob("*") for note in _NOTE.findall(file.read_bytes())]
    return {
        (int(inode), int(size), int(changed_ns)): digest.decode() for inode, size, changed_ns, digest in notes
    }


def forget_digests(output: Path) -> None:
    """Remove the recorded digests of a complete output."""
    if (Path(output) / _FOLDER).exists():
        remove_tree(Path(output) / _FOLDER)


def _enclosing_output(path: Path) -> Path | None:
    """The innermost output being written that contains the file."""
    return next(
        (folder for folder in Path(os.path.abspath(path)).parents if (folder / STARTED).exists()), None
    )
