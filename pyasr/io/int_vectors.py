"""Archives of integer vectors, one per utterance: Kaldi's `ali.*.gz` (binary or text, plain or compressed).

An entry is `KEY␣`, followed in binary by `\\0B`, the count and the values, each number as the byte 4 and an
int32; in text by the values up to the end of the line.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import keeping_name
from pyasr.io.archive import damaged, read_key, write_content
from pyasr.io.content import read_content
from pyasr.io.keys import KnownNames
from pyasr.io.object_kinds import INTEGERS, SOME_INTEGERS, TEXT, refuse_other

_BINARY = b"\0B"
_KIND = "integer vectors"
_INT = np.dtype([("size", "i1"), ("value", "<i4")])
_LOOKED_AT_BYTES = 1 << 24  # bytes of an unreadable object from which its kind is determined
MAX_JOBS = 100_000


def read_int_vectors(path: Path) -> dict[str, np.ndarray]:
    """{key: int32 array} in the order of the file. Raises UserError with the file if it is missing, truncated
    or something else."""
    return dict(iterate_int_vectors(path))


def iterate_int_vectors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The (key, int32 array) pairs of `read_int_vectors` one after the other; the file is in memory."""
    data = read_content(Path(path))
    known: set[str] = set()
    position, key, begin = 0, "", 0
    try:
        while position < len(data):
            key = read_key(data, position, path, _KIND, known)
            known.add(key)
            begin = position + len(key.encode()) + 1
            if data[begin : begin + 2] == _BINARY:
                vector, position = _binary_vector(data, begin + 2, path, key)
            else:
                vector, position = _text_vector(data, begin, path, key)
            yield key, vector
    except UserError:
        found = data[begin : begin + _LOOKED_AT_BYTES] if key else b""
        refuse_other(
            f"{path}: {key} at byte {begin}",
            found,
            INTEGERS,
            "give an archive of alignments",
            (SOME_INTEGERS, TEXT),
        )
        raise


def write_int_vectors(path: Path, vectors: dict[str, np.ndarray], binary: bool = True) -> None:
    """Write {key: integers} atomically; gzipped if the name ends in `.gz`."""
    entries = _binary_entry if binary else _text_entry
    with atomic_write(path, "wb") as f:
        write_content(f, path, b"".join(entries(key, vector) for key, vector in vectors.items()))


def read_job_archives(
    directory: Path, stem: str = "ali", keys: Container[str] | None = None
) -> dict[str, np.ndarray]:
    """All vectors of `DIRECTORY/STEM.1.gz` ... `STEM.N.gz`, or those of `keys`; N is the number in
    `DIRECTORY/num_jobs`. At most one archive is in memory, in addition to the result."""
    return dict(iterate_job_archives(directory, stem, keys))


def iterate_job_archives(
    directory: Path, stem: str = "ali", keys: Container[str] | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """The (key, int32 array) pairs of `read_job_archives` one after the other."""
    earlier = KnownNames()
    for path in job_archive_files(directory, stem):
        for key, vector in iterate_int_vectors(path):  # refuses duplicate keys within an archive
            if keys is None or key in keys:
                check_new(path, (key,), earlier)
                earlier.add(key)
                yield key, vector


def check_new(path: Path, keys: Iterable[str], earlier: Container[str]) -> None:
    """Raise UserError if one of `keys`, the utterances of a job, is among those of `earlier` jobs."""
    if twice := [key for key in keys if key in earlier]:
        raise UserError(f"{path}: {min(twice)} is also in the archive of an earlier job; align again")


def job_archive_files(directory: Path, stem: str = "ali") -> list[Path]:
    """The archives that `read_job_archives` reads, in the order of the jobs."""
    return [Path(directory) / f"{stem}.{job}.gz" for job in range(1, num_archives(directory) + 1)]


def archives_of_job(directory: Path, num_jobs: int, job: int) -> range:
    """The numbers, from 1, of the archives of job `job` out of `num_jobs`: every num_jobs-th archive."""
    return range(job, num_archives(directory) + 1, num_jobs)


def num_archives(directory: Path, remedy: str = "is this an alignment directory?") -> int:
    """The number in `DIRECTORY/num_jobs`. Raises UserError, ending with `remedy`, for anything but 1 to
    MAX_JOBS."""
    try:
        with keeping_name(f"{directory}/num_jobs"):
            number = int((Path(directory) / "num_jobs").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UserError(f"{directory}/num_jobs: missing or not a number; {remedy}") from None
    if not is_num_jobs(number):
        raise UserError(f"{directory}/num_jobs: not a number from 1 to {MAX_JOBS}; {remedy}")
    return number


def is_num_jobs(number: int) -> bool:
    """Whether `number` is a valid number of jobs, each of which has an archive."""
    return 1 <= number <= MAX_JOBS


def _damaged(path, position: int, what: str) -> UserError:
    return damaged(path, position, _KIND, what)


def _binary_vector(data: bytes, position: int, path, key: str) -> tuple[np.ndarray, int]:
    if position + 5 > len(data) or data[position] != 4:
        raise _damaged(path, position, f"{key} has no int32 vector")
    (size,) = struct.unpack_from("<i", data, position + 1)
    begin, end = position + 5, position + 5 + 5 * size
    if size < 0 or end > len(data):
        raise _damaged(path, position, f"the {size} integers of {key} exceed the file")
    integers = np.frombuffer(data, _INT, size, begin)
    if (integers["size"] != 4).any():
        raise _damaged(path, begin, f"{key} has values that are not int32")
    return integers["value"].astype(np.int32), end


def _text_vector(data: bytes, position: int, path, key: str) -> tuple[np.ndarray, int]:
    end = data.find(b"\n", position)
    end = len(data) if end < 0 else end
    try:
        return np.array([int(word) for word in data[position:end].split()], np.int32), end + 1
    except (ValueError, OverflowError):
        raise _damaged(path, position, f"{key} has values that are not integers") from None


def _binary_entry(key: str, vector) -> bytes:
    integers = np.empty(len(vector), _INT)
    integers["size"], integers["value"] = 4, vector
    return key.encode() + b" " + _BINARY + b"\4" + struct.pack("<i", len(vector)) + integers.tobytes()


def _text_entry(key: str, vector) -> bytes:
    return f"{key} {' '.join(map(str, np.asarray(vector).tolist()))}\n".encode()
