"""Kaldi's matrix archives: `KEY ark:offset` tables (scp) and the archives (ark) they point into.

    with ArkWriter("feats.ark", "feats.scp", compress=True) as writer:
        writer.write("utt1", matrix)
    for key, matrix in iterate("feats.scp"):
        ...

An extended filename ("rx") is `FILE`, `FILE:OFFSET`, each with an optional inclusive range `[first:last]` of rows or `[rows,columns]`.
Binary float, double and compressed (CM, CM2, CM3) matrices and text matrices are read. This is the only module that imports kaldiio.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from kaldiio import matio

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write, disk_error
from pyasr.io.text import read_table, write_table

_RX = re.compile(r"^(?P<path>.+?)(:(?P<offset>\d+))?(\[(?P<range>[\d:, ]+)\])?$")
_MATRIX_HEADERS = (b"\0BFM ", b"\0BDM ", b"\0BCM ", b"\0BCM2", b"\0BCM3")
_PER_COLUMN_8_BIT = 2  # Kaldi's kSpeechFeature


def read_scp(path: Path) -> dict[str, str]:
    """Keys to extended filenames, in the order of the file. Raises UserError with file and line for a malformed one."""
    return read_table(path)


def load_matrix(rx: str, dtype=np.float32) -> np.ndarray:
    """The matrix at `rx` as `dtype`, shape (rows, columns). Raises UserError for a missing or truncated file."""
    return ArkReader().load(rx, dtype)


def load_all(scp: Path) -> dict[str, np.ndarray]:
    """All matrices of a table; each archive is opened once and read forwards."""
    table = read_scp(scp)
    reader = ArkReader()
    found = {key: reader.load(table[key]) for key in sorted(table, key=lambda key: _split_rx(table[key])[:2])}
    return {key: found[key] for key in table}


def iterate(scp: Path) -> Iterator[tuple[str, np.ndarray]]:
    """(key, float32 matrix) in the order of the table; an archive stays open as long as the entries remain in it."""
    reader = ArkReader()
    for key, rx in read_scp(scp).items():
        yield key, reader.load(rx)


class ArkReader:
    """Loads matrices by extended filename and keeps the last archive open, so that reads in file order open each archive once."""

    def __init__(self):
        self._path, self._file = None, None

    def load(self, rx: str, dtype=np.float32) -> np.ndarray:
        path, offset, span = _split_rx(rx)
        try:
            matrix = _read_matrix(self._open(path), offset)
        except OSError as error:
            raise disk_error(error, Path(path)) from error
        except (ValueError, AssertionError, struct.error) as error:
            note = f"the file has {Path(path).stat().st_size} bytes, the matrix begins at {offset}"
            raise UserError(f"{rx}: no whole matrix there ({note}); the archive is truncated or damaged, make it again") from error
        return np.array(_cut(matrix, span, rx), dtype=dtype)

    def _open(self, path: str):
        if path != self._path:
            self.close()
            self._file = open(path, "rb")
            self._path = path
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._path = self._file = None

    def __del__(self):
        self.close()


def _split_rx(rx: str) -> tuple[str, int, str | None]:
    match = _RX.match(rx.strip())
    if match is None or rx.rstrip().endswith("|"):
        raise UserError(f"'{rx}': not FILE, FILE:OFFSET or FILE:OFFSET[RANGE]; write the matrices to an archive first")
    return match["path"], int(match["offset"] or 0), match["range"]


def _read_matrix(file, offset: int) -> np.ndarray:
    file.seek(offset)
    head = file.read(5)
    file.seek(offset)
    if head in _MATRIX_HEADERS:
        return matio.read_matrix_or_vector(file)
    if head.startswith(b"\0B") or not head:
        raise ValueError("no matrix")
    return _read_text_matrix(file)


def _read_text_matrix(file) -> np.ndarray:
    """Kaldi's text form, ` [ 1 2\\n 3 4 ]`; kaldiio's own reader takes the type from the first number and fails on `1 2.5`."""
    content = b""
    while b"]" not in content:
        block = file.read(1 << 16)
        if not block:
            raise ValueError("no closing bracket")
        content += block
    before, opened, body = content[: content.index(b"]")].partition(b"[")
    if not opened or before.strip():
        raise ValueError("no opening bracket")
    rows = [np.array(line.split(), dtype=np.float64) for line in body.split(b"\n") if line.strip()]
    return np.vstack(rows) if rows else np.zeros((0, 0))


def _cut(matrix: np.ndarray, span: str | None, rx: str) -> np.ndarray:
    """The inclusive range `first:last` of rows, or `rows,columns`."""
    if span is None:
        return matrix
    for axis, part in enumerate(span.split(",")):
        if part.strip() in ("", ":"):
            continue
        first, _, last = part.partition(":")
        try:
            begin, end = int(first), int(last or first) + 1
        except ValueError:
            raise UserError(f"'{rx}': the range [{span}] is not [first:last]") from None
        if end > matrix.shape[axis] or begin >= end:
            raise UserError(f"{rx}: the range [{span}] lies outside the matrix of {matrix.shape[0]} rows and {matrix.shape[1]} columns")
        matrix = matrix[begin:end] if axis == 0 else matrix[:, begin:end]
    return matrix


class ArkWriter:
    """Writes matrices to an archive; the table appears, whole, when the block ends without an exception.

    ark, scp   files to write; `scp` may be None
    compress   one byte a value with four ranges per column (Kaldi's speech-feature compression) instead of float32
    named      path by which the table names the archive, where it will be moved after writing

    float64 matrices are written as double, all others as float32.
    """

    def __init__(self, ark: Path, scp: Path | None, compress: bool = False, named: Path | None = None):
        self._ark, self._scp, self._named = Path(ark), scp, Path(named or ark)
        self._method = _PER_COLUMN_8_BIT if compress else None
        self._table: dict[str, str] = {}

    def __enter__(self) -> ArkWriter:
        try:
            self._file = self._ark.open("wb")
        except OSError as error:
            raise disk_error(error, self._ark) from error
        return self

    def write(self, key: str, matrix: np.ndarray) -> None:
        matrix = np.ascontiguousarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)
        try:
            self._file.write(f"{key} ".encode())
            self._table[key] = f"{self._named}:{self._file.tell()}"
            matio.write_array(self._file, matrix, compression_method=self._method)
        except OSError as error:
            raise disk_error(error, self._ark) from error

    def __exit__(self, kind, error, trace) -> None:
        try:
            self._file.close()
        except OSError as failure:
            raise disk_error(failure, self._ark) from failure
        if kind is None and self._scp is not None:
            write_table(self._scp, self._table)
