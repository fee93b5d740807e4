"""Reading and writing of Kaldi lattice archives (`lat.1.gz`) of raw and compact lattices, binary and text.

    with LatticeWriter("lat.1.gz") as writer:
        writer.write("utt1", lattice)                               # a Lattice or a CompactLattice
    for utt, lattice in read_compact_lattices("lat.1.gz"):          # raw ones are converted
        ...
    for utt, lattice in read_lattices("lat.1.gz"):                  # compact ones are converted
        ...

A binary entry is `KEY `, then a transducer as `pyasr.decode.lattices.lattice_binary` describes it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.base.utf8 import without_mark
from pyasr.decode.lattices import lattice_binary
from pyasr.decode.lattices.compact_lattice import CompactLattice, to_compact, to_lattice
from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.lattices.lattice_text import TextLattice, text_lattice
from pyasr.io.content import (
    HEAD_BYTES,
    check_unpacked,
    naming_damage,
    open_file,
    packing_of,
    readable,
    unpacking,
)
from pyasr.io.object_kinds import FST, PEEK_BYTES, TEXT, refuse_keyless, refuse_other

_CHUNK = 1 << 20
_GZIP_LEVEL = 2


class LatticeWriter:
    """Writes an archive, gzipped if the name ends in .gz; the file appears when the `with` block ends without
    an exception."""

    def __init__(self, path: Path, binary: bool = True):
        self.path, self.binary = Path(path), binary

    def __enter__(self) -> LatticeWriter:
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(atomic_write(self.path, "wb"))
        if self.path.suffix == ".gz":
            self._file = self._stack.enter_context(gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file, mtime=0))
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def write(self, key: str, lattice: Lattice | CompactLattice) -> None:
        """Add one entry."""
        body = (
            lattice_binary.encode(lattice) if self.binary else b"\n" + text_lattice(lattice).encode() + b"\n"
        )
        self._file.write(key.encode() + b" ")
        self._file.write(body)


def write_lattices(
    path: Path, lattices: Iterable[tuple[str, Lattice | CompactLattice]], binary: bool = True
) -> None:
    """Write an archive of (key, lattice)."""
    with LatticeWriter(path, binary) as writer:
        for key, lattice in lattices:
            writer.write(key, lattice)


class _Buffer:
    """Bytes of a plain or compressed file, read on demand; keeps the position for error messages."""

    def __init__(self, file: io.BufferedReader, path: Path):
        self.path, self.size = path, os.fstat(file.fileno()).st_size
        self.packing = packing_of(file.peek(HEAD_BYTES), path)
        self.file = unpacking(file, self.packing)
        self.data, self.at, self.base, self.ended = b"", 0, 0, False

    def error(self, what: str) -> UserError:
        return UserError(
            f"{self.path}: {what} at byte {self.base + self.at} of the uncompressed archive; decode again"
        )

    def more(self) -> bool:
        """Read more; False at the end of the file."""
        if self.ended:
            return False
        with naming_damage(self.packing, self.error):
            chunk = self.file.read(max(_CHUNK, len(self.data) - self.at))
        if not self.base + len(self.data):
            chunk = without_mark(chunk, self.path)
        check_unpacked(self.base + len(self.data) + len(chunk), self.size, self.path)
        self.data, self.base, self.at = self.data[self.at :] + chunk, self.base + self.at, 0
        self.ended = not chunk
        return bool(chunk)

    def need(self, size: int, what: str) -> None:
        while len(self.data) - self.at < size:
            if not self.more():
                raise self.error(f"truncated archive: {what} is incomplete")

    def take(self, size: int, what: str) -> bytes:
        self.need(size, what)
        self.at += size
        return self.data[self.at - size : self.at]

    def until(self, stop: bytes, what: str, most: int = 1 << 30) -> bytes:
        """The bytes before `stop`, which is skipped."""
        while (end := self.data.find(stop, self.at)) < 0:
            if len(self.data) - self.at > most or not self.more():
                raise self.error(f"truncated or damaged archive: no end of {what}")
        found, self.at = self.data[self.at : end], end + len(stop)
        return found

    def finished(self) -> bool:
        return self.at == len(self.data) and not self.more()


def read_lattices(path: Path) -> Iterator[tuple[str, Lattice]]:
    """(key, lattice) of each entry of an archive, binary or text, plain or compressed; compact lattices are
    converted to raw ones.

    Raises UserError, naming file and offset, for truncated or damaged archives, other arc types and cycles.
    """
    return (
        (key, to_lattice(lattice) if isinstance(lattice, CompactLattice) else lattice)
        for key, lattice in read_either(path)
    )


def read_compact_lattices(path: Path) -> Iterator[tuple[str, CompactLattice]]:
    """Like `read_lattices`, as compact lattices; raw lattices are converted without determinisation."""
    return (
        (key, to_compact(lattice) if isinstance(lattice, Lattice) else lattice)
        for key, lattice in read_either(path)
    )


def read_either(path: Path) -> Iterator[tuple[str, Lattice | CompactLattice]]:
    """Like `read_lattices`, each lattice of the kind that is stored."""
    path = Path(path)
    with open_file(path) as raw, readable(path):
        buffer = _Buffer(raw, path)
        while not buffer.finished():
            yield _entry(buffer)


def _entry(buffer: _Buffer) -> tuple[str, Lattice | CompactLattice]:
    if buffer.base + buffer.at == 0:
        refuse_keyless(buffer.path, bytes(buffer.data[:PEEK_BYTES]), "lattices")
    word = buffer.until(b" ", "the utterance's name", 1 << 12)
    try:
        key = word.decode()
    except UnicodeDecodeError:
        key = ""
    if not key or "\n" in key:
        raise buffer.error("no utterance name where an entry should begin: not a lattice archive, or damaged")
    what = f"the lattice of {key}"
    buffer.need(1, what)
    if buffer.data[buffer.at : buffer.at + 1] in (b"\n", b"\r"):
        return key, _read_text(buffer, key)
    if buffer.take(4, what) != lattice_binary.MAGIC:
        buffer.at -= 4
        found = bytes(buffer.data[buffer.at : buffer.at + PEEK_BYTES])
        refuse_other(f"{buffer.path}: {key}", found, FST, "give an archive of lattices", (TEXT,))
        raise buffer.error(
            f"{what} has neither OpenFst's magic number nor text lines: not a lattice archive, or damaged"
        )
    return key, _read_binary(buffer, key)


def _string(buffer: _Buffer, what: str) -> bytes:
    size = struct.unpack("<i", buffer.take(4, what))[0]
    if not 0 <= size < 256:
        raise buffer.error(f"damaged header of {what}")
    return buffer.take(size, what)


def _read_binary(buffer: _Buffer, key: str) -> Lattice | CompactLattice:
    what = f"the lattice of {key}"
    kind, arc_type = _string(buffer, what), _string(buffer, what)
    if kind != b"vector" or arc_type not in lattice_binary.IS_COMPACT:
        names = f"'{kind.decode(errors='replace')}' with '{arc_type.decode(errors='replace')}' arcs"
        raise buffer.error(
            f"{what} is a transducer of type {names}, not a lattice (lattice4 or compactlattice44)"
        )
    _, flags, _, start, num_states, _ = struct.unpack("<iiQqqq", buffer.take(40, what))
    if flags & 3 or num_states < 0 or not -1 <= start < max(num_states, 0):
        raise buffer.error(f"damaged header of {what}")
    compact = lattice_binary.IS_COMPACT[arc_type]
    words, sizes = _states(buffer, num_states, compact, what)
    try:
        lattice = lattice_binary.decode(words, start, num_states, sizes, compact, f"{buffer.path}: {key}")
    except ValueError as error:
        raise buffer.error(f"damaged archive: {what} has {error}") from None
    buffer.at += 4 * len(words)
    return lattice


def _states(
    buffer: _Buffer, num_states: int, compact: bool, what: str
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """(int32 words of all states, sizes from `lattice_binary.measure`); reads until they are complete."""
    while True:
        words = np.frombuffer(buffer.data, "<i4", (len(buffer.data) - buffer.at) // 4, buffer.at)
        end, num_arcs, num_tids, num_final_tids = lattice_binary.measure(words, num_states, compact)
        if end == lattice_binary.DAMAGED:
            raise buffer.error(f"damaged archive: {what} has an impossible number of arcs or labels")
        if end != lattice_binary.INCOMPLETE:
            return words[:end], (num_arcs, num_tids, num_final_tids)
        if not buffer.more():
            raise buffer.error(f"truncated archive: {what} is incomplete")


def _read_text(buffer: _Buffer, key: str) -> Lattice | CompactLattice:
    """Read lines up to an empty one."""
    begin = buffer.base + buffer.at
    buffer.until(b"\n", "line")
    table = TextLattice()
    while line := buffer.until(b"\n", f"the lattice of {key}").strip():
        try:
            table.add(line.decode().split())
        except (ValueError, UnicodeDecodeError):
            raise UserError(
                f"{buffer.path}: '{line.decode(errors='replace')}' in the lattice of {key} (from byte "
                f"{begin}) is not a line of a lattice; decode again"
            ) from None
    return table.lattice(f"{buffer.path}: {key}")
