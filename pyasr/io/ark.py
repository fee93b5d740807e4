"""Kaldi's matrix archives: `KEY ark:offset` tables (scp) and the archives (ark) they point into.

    with ArkWriter("feats.ark", "feats.scp", compress=True) as writer:
        writer.write("utt1", matrix)
    for key, matrix in iterate("feats.scp"):
        ...

An extended filename ("rx") is `FILE`, `FILE:OFFSET`, each with an optional inclusive range `[first:last]` of
rows or `[rows,columns]`. Binary float, double and compressed (CM, CM2, CM3) matrices and text matrices are
read and written. `read_ark` reads whole archives without a table, such as Kaldi's speaker transforms
`trans.*`. This is the only module that imports kaldiio.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import placed, root_of
from pyasr.base.outputs.output import atomic_write
from pyasr.base.outputs.written_digests import note_digest, open_hashed
from pyasr.base.system_errors import naming
from pyasr.io.archive import read_key, write_content
from pyasr.io.content import open_file, read_content, readable
from pyasr.io.object_kinds import (
    COMPRESSED,
    MATRIX,
    PEEK_BYTES,
    VECTOR,
    first_key,
    kind_of,
    refuse_other,
    single,
)
from pyasr.io.tables import Parsed, Table, TableBuilder
from pyasr.io.text_tables import write_table

_MAX_ROWS_BEYOND = 3
_MAX_DIGITS, _MAX_RANGE_CHARS, _OF_RANGE = 18, 80, frozenset("0123456789:, ")
_ENTRY = re.compile(rb"[^\s\x00-\x1f\x7f]+[ \t]+(?:\0B|\[)")
_VECTORS, _FULL = (b"\0BFV ", b"\0BDV "), (b"\0BFM ", b"\0BDM ")
# bytes of the marker, of a value, of a column header
_COMPRESSED = {b"\0BCM ": (5, 1, 8), b"\0BCM2": (6, 2, 0), b"\0BCM3": (6, 1, 0)}
_REMEDY = "give an archive of matrices"
_HEAD_BYTES, _TEXT_BLOCK_BYTES = 22, 1 << 16
# CM, CM2, CM3: Kaldi's kSpeechFeature, kTwoByteAuto, kOneByteAuto
COMPRESSION = {"speech": 2, "two_bytes": 3, "one_byte": 5}


def read_scp(path: Path) -> dict[str, str]:
    """{key: extended filename}, with paths valid from the current directory (`pyasr.base.files.table_paths`),
    in the order of the file.

    Raises UserError as `scp_table`, which takes a fifth of the memory for millions of entries.
    """
    return dict(scp_table(path).items())


def scp_table(path: Path) -> Mapping[str, str]:
    """{key: extended filename}, with paths valid from the current directory, in the order of the file.

    Raises UserError with file and line for a malformed line, and if the file is an archive.
    """
    try:
        table = Table.read(path)
    except UserError:
        _refuse_archive(path)
        raise
    for number, (key, rx) in enumerate(table.items(), 1):
        if not rx or rx.startswith("["):
            _refuse_archive(path)
            raise UserError(f"{path}:{number}: no file after '{key}'; write 'KEY FILE:OFFSET'")
    root = root_of(path, table.values())
    return table if root == Path() else Parsed(table, partial(placed, root))


def _refuse_archive(path: Path) -> None:
    """Raise UserError if a file that should be a table is an archive, or a matrix without a key."""
    with open_file(path) as file, readable(path):
        head = file.read(PEEK_BYTES)
    if _ENTRY.match(head):
        raise UserError(
            f"{path}: an archive of matrices, not a table; give the table (.scp) that was written with it"
        )
    kind = kind_of(head)
    if kind in (MATRIX, COMPRESSED, VECTOR):
        raise UserError(f"{path}: {single(kind)}, not a table; give a table with the line 'KEY {path}'")


def load_matrix(rx: str, dtype=np.float32) -> np.ndarray:
    """The matrix at `rx`, (rows, columns), as `dtype`. Raises UserError for a missing or truncated file."""
    return ArkReader().load(rx, dtype)


def load_all(scp: Path) -> dict[str, np.ndarray]:
    """{key: matrix} of a table; each archive is opened once and read forwards."""
    table = read_scp(scp)
    reader = ArkReader()
    found = {key: reader.load(table[key]) for key in sorted(table, key=lambda key: _split_rx(table[key])[:2])}
    return {key: found[key] for key in table}


def read_ark(path: Path, dtype=np.float32) -> dict[str, np.ndarray]:
    """{key: matrix or vector} of an archive, with or without a table, in its order: binary or text, plain or
    compressed.

    dtype  None: the stored type (text: float64)

    Raises UserError with file and byte (of the unpacked content) if the archive is damaged or something else.
    """
    content = read_content(Path(path))
    file = io.BytesIO(content)
    found: dict[str, np.ndarray] = {}
    while file.tell() < len(content):
        key = read_key(content, file.tell(), path, "matrices", found)
        begin = file.tell() + len(key.encode()) + 1
        try:
            found[key] = np.array(_read_matrix(file, len(content), begin, vectors=True), dtype=dtype)
        except (ValueError, AssertionError, struct.error) as error:
            refuse_other(
                f"{path}: {key} at byte {begin}",
                content[begin : begin + PEEK_BYTES],
                MATRIX,
                _REMEDY,
                (COMPRESSED, VECTOR),
            )
            raise UserError(
                f"{path}: no complete matrix of {key} at byte {begin}; the archive is truncated or damaged"
            ) from error
    return found


def write_ark(path: Path, matrices: dict[str, np.ndarray], binary: bool = True) -> None:
    """Write {key: matrix or vector} without a table, atomically; gzipped if the name ends in `.gz`, float64
    as double."""
    content = io.BytesIO()
    for key, matrix in matrices.items():
        _write_entry(content, key, matrix, None, binary)
    with atomic_write(path, "wb") as f:
        write_content(f, path, content.getvalue())


def iterate(scp: Path) -> Iterator[tuple[str, np.ndarray]]:
    """(key, float32 matrix) in the order of the table; an archive stays open for consecutive entries."""
    reader = ArkReader()
    for key, rx in read_scp(scp).items():
        yield key, reader.load(rx)


class ArkReader:
    """Loads matrices by extended filename; the last archive stays open, so reads in file order open each
    archive once."""

    def __init__(self):
        self._path, self._file, self._size = None, None, 0

    def load(self, rx: str, dtype=np.float32, vectors: bool = False) -> np.ndarray:
        """The matrix at `rx`, (rows, columns), as `dtype`. Raises UserError for a missing or truncated file.

        vectors  accept vectors, (columns,), too
        """
        path, offset, span = _split_rx(rx)
        file, size = self._open(path)
        try:
            with readable(path):
                matrix = _read_matrix(file, size, offset, vectors)
        except (ValueError, AssertionError, struct.error) as error:
            self._refuse_known(rx, offset, (COMPRESSED, *[VECTOR] * vectors))
            note = f"the file has {size} bytes, the matrix begins at {offset}"
            raise UserError(
                f"{rx}: no complete matrix there ({note}); the archive is truncated or damaged, create it "
                "again"
            ) from error
        return np.array(_cut(matrix, span, rx), dtype=dtype)

    def _refuse_known(self, rx: str, offset: int, also: tuple[str, ...]) -> None:
        """Raise UserError if the entry begins elsewhere, or a known object other than a matrix, or a kind of
        `also`, is at `offset`."""
        with readable(self._path):
            self._file.seek(0)
            head = self._file.read(PEEK_BYTES)
            self._file.seek(offset)
            found = self._file.read(PEEK_BYTES)
        if key := first_key(found):
            begin = offset + len(key.encode()) + 1
            raise UserError(
                f"{rx}: the entry of {key} begins there, and its matrix at byte {begin}; write FILE:{begin} "
                "in the table"
            )
        if offset and (kind := kind_of(head)) in (MATRIX, COMPRESSED):
            raise UserError(
                f"{rx}: the file is {single(kind)}, which begins at byte 0; write 'KEY FILE' in the table, "
                "without offset"
            )
        refuse_other(rx, found, MATRIX, _REMEDY, also)

    def _open(self, path: str) -> tuple[BinaryIO, int]:
        """(the open file, its size)"""
        if path != self._path:
            self.close()
            self._file = open_file(path)
            self._path, self._size = path, os.fstat(self._file.fileno()).st_size
        return self._file, self._size

    def close(self) -> None:
        """Close the archive that was read last."""
        if self._file is not None:
            self._file.close()
        self._path = self._file = None

    def __del__(self):
        with contextlib.suppress(OSError):  # harmless: it was only read
            self.close()


def archive_of(rx: str) -> str:
    """The file of an entry of an scp; "" for a command and an empty entry."""
    file, _, offset = rx.rpartition(":")
    if file and offset.isdecimal():  # the form of nearly all entries; a table may have a million
        return file
    return "" if not rx.strip() or rx.rstrip().endswith("|") else _split_rx(rx)[0]


def _split_rx(rx: str) -> tuple[str, int, str | None]:
    """(file, offset, range of rows and columns)"""
    path, span = rx.strip(), None
    if not path or path.endswith("|"):
        raise UserError(
            f"'{rx}': not FILE, FILE:OFFSET or FILE:OFFSET[RANGE]; write the matrices to an archive first"
        )
    before, _, within = path.removesuffix("]").rpartition("[")
    if path.endswith("]") and before and 0 < len(within) <= _MAX_RANGE_CHARS and _OF_RANGE.issuperset(within):
        path, span = before, within
    file, _, offset = path.rpartition(":")
    is_number = offset.isdecimal() and offset.isascii() and len(offset) <= _MAX_DIGITS
    return (file, int(offset), span) if file and is_number else (path, 0, span)


def _read_matrix(file, size: int, offset: int, vectors: bool = False) -> np.ndarray:
    """The matrix (or vector, if allowed) at `offset` of a file of `size` bytes; the file position is then
    after it."""
    if offset >= size:
        raise ValueError("beyond the end")
    file.seek(offset)
    head = file.read(_HEAD_BYTES)
    file.seek(offset)
    if head[:2] == b"\0B":
        if offset + _num_bytes(head, vectors) > size:
            raise ValueError("shorter than its header gives")
        return _matio().read_matrix_or_vector(file)
    matrix = _read_text_matrix(file)
    if matrix.ndim == 1 and not vectors:
        raise ValueError("a vector")
    return matrix


def _matio():
    """The module of kaldiio, imported only by programs that read or write matrices."""
    from kaldiio import matio

    return matio


def _num_bytes(head: bytes, vectors: bool) -> int:
    """Bytes of a binary matrix or vector that begins with `head`; kaldiio would allocate the memory before it
    reads the file."""
    kind = head[:5]
    if kind in _COMPRESSED:
        begin, value_bytes, column_bytes = _COMPRESSED[kind]
        rows, columns = struct.unpack_from("<8xii", head, begin)
        size = begin + 16 + column_bytes * columns + value_bytes * rows * columns
    elif kind in _FULL:
        rows, columns = struct.unpack_from("<xixi", head, 5)
        size = 15 + (4 if kind == _FULL[0] else 8) * rows * columns
    elif vectors and kind in _VECTORS:
        rows, columns = struct.unpack_from("<xi", head, 5)[0], 1
        size = 10 + (4 if kind == _VECTORS[0] else 8) * rows
    else:
        raise ValueError("not a matrix")
    if rows < 0 or columns < 0 or rows and not columns:
        raise ValueError("invalid size")
    return size


def _read_text_matrix(file) -> np.ndarray:
    """A matrix in Kaldi's text form, ` [ 1 2\\n 3 4 ]`; a vector without a line break. The reader of kaldiio
    infers the type from the first number and fails on `1 2.5`."""
    begin, content, end = file.tell(), bytearray(), -1
    while end < 0:
        block = file.read(_TEXT_BLOCK_BYTES)
        if not block or not content and not block.lstrip().startswith(b"["):
            raise ValueError("no bracket")
        content += block
        end = content.find(b"]", len(content) - len(block))
    body = bytes(content[content.index(b"[") + 1 : end])
    file.seek(begin + end + 1)
    behind = file.readline()
    if behind.lstrip().startswith(b"["):
        raise ValueError("several brackets")
    if behind != b"\n":
        file.seek(begin + end + 1)
    rows = [np.array(line.split(), dtype=np.float64) for line in body.split(b"\n") if line.strip()]
    if b"\n" not in body and rows:
        return rows[0]
    return np.vstack(rows) if rows else np.zeros((0, 0))


def _cut(matrix: np.ndarray, span: str | None, rx: str) -> np.ndarray:
    """The inclusive range `first:last` of rows, or `rows,columns`. As in Kaldi, a range of rows, which may be
    computed from times of segments, may end up to three rows after the last row."""
    if span is None:
        return matrix
    shape = matrix.shape
    for axis, part in enumerate(span.split(",", matrix.ndim - 1)):
        if part.strip() in ("", ":"):
            continue
        first, _, last = part.partition(":")
        try:
            begin, end = int(first), int(last or first) + 1
        except ValueError:
            raise UserError(f"'{rx}': the range [{span}] is not [first:last]") from None
        beyond = _MAX_ROWS_BEYOND if axis == 0 and matrix.ndim == 2 else 0
        if end > shape[axis] + beyond or begin >= min(end, shape[axis]):
            raise UserError(f"{rx}: the range [{span}] is outside of the size {' x '.join(map(str, shape))}")
        matrix = matrix[begin:end] if axis == 0 else matrix[:, begin:end]
    return matrix


class ArkWriter:
    """Writes matrices to an archive; the table is written when the block ends without an exception.

    ark, scp   files to write; `scp` may be None
    compress   one or two bytes per value instead of four: a key of COMPRESSION, or True for "speech" (one
               byte, four ranges per column)
    named      path of the archive in the table, to which it will be moved after writing
    binary     False: Kaldi's text form

    float64 matrices are written as double, all others as float32.
    """

    def __init__(
        self,
        ark: Path,
        scp: Path | None,
        compress: bool | str = False,
        named: Path | None = None,
        binary: bool = True,
    ):
        self._ark, self._scp, self._named = Path(ark), scp, Path(named or ark)
        self._method = COMPRESSION["speech" if compress is True else compress] if compress else None
        self._binary = binary
        self._table = TableBuilder()

    def __enter__(self) -> ArkWriter:
        with naming(self._ark):
            self._file = open_hashed(self._ark)
        return self

    def write(self, key: str, matrix: np.ndarray) -> None:
        with naming(self._ark):
            self._table.add(
                key, f"{self._named}:{_write_entry(self._file, key, matrix, self._method, self._binary)}"
            )

    def __exit__(self, kind, error, trace) -> None:
        with naming(self._ark):
            self._file.close()
            if kind is None:
                note_digest(self._ark, self._file)
        if kind is None and self._scp is not None:
            write_table(self._scp, self._table.table())


def _write_entry(file, key: str, matrix: np.ndarray, method: int | None, binary: bool) -> int:
    """Write an entry of an archive; the offset of its matrix."""
    matrix = np.ascontiguousarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)
    file.write(f"{key} ".encode())
    offset = file.tell()
    if binary:
        _matio().write_array(file, matrix, compression_method=method)
    else:
        rows = "".join(f"\n  {' '.join(map(str, row))}" for row in np.atleast_2d(matrix))
        file.write(f" [{rows if matrix.ndim > 1 else rows[2:]} ]\n".encode())
    return offset
