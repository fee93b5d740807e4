"""Kaldi's object files (`final.mdl`, `tree`, `topo`): tokens, numbers, vectors and matrices, binary or text.

A binary file begins with the bytes `\\0B`; tokens end in one space, numbers are preceded by one byte with
their size, vectors and matrices by a token (`FV` `DV` `FM` `DM`) and their dimensions. In a text file
everything is separated by white space. Files whose names end in `.gz` are compressed. `pyasr.io.ark` reads
feature archives.

    with KaldiWriter("x.mdl") as f:
        f.token("<Pair>"); f.int32(3); f.vector([1.0, 2.0])
    reader = KaldiReader("x.mdl")
    reader.expect("<Pair>"); count = reader.int32(); values = reader.vector()
"""

from __future__ import annotations

import gzip
import io
import re
import struct
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.content import read_content
from pyasr.io.object_kinds import PEEK_BYTES, refuse_other

_BINARY_HEADER = b"\0B"
_WORD, _BLANK = re.compile(rb"\s*(\S+)"), re.compile(rb"\s*")
_MIN_INT, _MAX_INT = -(1 << 31), (1 << 32) - 1
_INT_FORMATS = {1: "<b", 2: "<h", 4: "<i", 8: "<q", -1: "<B", -2: "<H", -4: "<I", -8: "<Q"}
_INT = struct.Struct("<i")
_INTEGER = np.dtype([("size", "i1"), ("value", "<i4")])  # as Kaldi writes one
_FLOAT_FORMATS = {4: "<f", 8: "<d"}
_VECTOR_TYPES: dict[str, np.dtype] = {"FV": np.dtype("<f4"), "DV": np.dtype("<f8")}
_MATRIX_TYPES: dict[str, np.dtype] = {"FM": np.dtype("<f4"), "DM": np.dtype("<f8")}
_PACKED_TYPES: dict[str, np.dtype] = {"FP": np.dtype("<f4"), "DP": np.dtype("<f8")}
_SHOWN = 20


class KaldiReader:
    """Reads one Kaldi object file from start to end.

    Every method reads the next item. An unexpected item, or the end of the file, raises a UserError with the
    file and the offset in (uncompressed) bytes. Sizes are compared with the rest of the file before memory is
    allocated.
    """

    def __init__(self, path: Path, content: bytes | None = None):
        self.path = Path(path)
        self._data = read_content(self.path) if content is None else content
        self.binary = self._data[:2] == _BINARY_HEADER
        self.offset = 2 if self.binary else 0

    def error(self, what: str, offset: int | None = None) -> UserError:
        """A UserError at `offset` (by default the current one), to be raised by the caller."""
        return UserError(f"{self.path}: at byte {self.offset if offset is None else offset}: {what}")

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole file, unpacked."""
        return len(self._data)

    @property
    def num_left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self.offset

    def refuse_other(self, wanted: str, remedy: str) -> None:
        """Raise UserError, ending with `remedy`, if the file is known to be of another kind than `wanted`
        (`pyasr.io.object_kinds`)."""
        refuse_other(f"{self.path}", self._data[:PEEK_BYTES], wanted, remedy)

    def at_end(self) -> bool:
        """Whether only white space is left."""
        return self.num_left == 0 or not self.binary and _BLANK.fullmatch(self._data, self.offset) is not None

    def expect_end(self) -> None:
        """Raise UserError unless the whole file has been read."""
        if not self.at_end():
            raise self.error(f"{self.num_left} unexpected bytes after the object")

    def token(self) -> str:
        """The next word; in a binary file it must end in a space."""
        if not self.binary:
            return self._word()
        end = self._data.find(b" ", self.offset)
        if end < 0 or end == self.offset:
            raise self.error(f"a token was expected, found {self._glimpse()}")
        word, self.offset = self._data[self.offset : end], end + 1
        return self._decode(word, self.offset - len(word) - 1)

    def peek_token(self) -> str:
        """The next word, without moving the position."""
        before = self.offset
        word = self.token()
        self.offset = before
        return word

    def expect(self, *tokens: str) -> str:
        """Read one of `tokens`; the token that was found."""
        before = self.offset
        try:
            word = self.token()
        except UserError:
            raise self.error(
                f"{' or '.join(tokens)} was expected, found {self._glimpse(before)}", before
            ) from None
        if word not in tokens:
            raise self.error(f"{' or '.join(tokens)} was expected, found {word[:_SHOWN]!r}", before)
        return word

    def int32(self) -> int:
        """An integer of 32 bits, signed or not (in binary, the size byte is negative for unsigned types)."""
        before = self.offset
        # nearly all integers
        if self.binary and self._data[before : before + 1] == b"\4" and self.num_left >= 5:
            self.offset += 5
            return _INT.unpack_from(self._data, before + 1)[0]
        value = self._number(_INT_FORMATS, int, "an integer")
        if not _MIN_INT <= value <= _MAX_INT:
            raise self.error("an integer of 32 bits was expected, found a larger one", before)
        return value

    uint32 = int32

    def int32s(self, size: int) -> np.ndarray:
        """`size` integers as int64 (size,): the same as repeated `int32`, but faster."""
        if self.binary and 0 <= size <= self.num_left // _INTEGER.itemsize:
            found = np.frombuffer(self._data, _INTEGER, size, self.offset)
            if (found["size"] == 4).all():
                self.offset += found.nbytes
                return found["value"].astype(np.int64)
        return np.array([self.int32() for _ in range(size)], np.int64)

    def float32(self) -> float:
        """A float or a double, as stored."""
        return self._number(_FLOAT_FORMATS, float, "a floating-point number")

    float64 = float32

    def bool(self) -> bool:
        """A boolean, T or F."""
        before = self.offset
        word = self._take(1) if self.binary else self._word().encode()
        if word not in (b"T", b"F"):
            raise self.error(f"T or F was expected, found {word[:_SHOWN]!r}", before)
        return word == b"T"

    def int_vector(self) -> np.ndarray:
        """A vector written by Kaldi's WriteIntegerVector, int32 (n,)."""
        if not self.binary:
            return self._text_list(np.int32, "integers")
        before = self.offset
        if self._take(1) != b"\x04":
            raise self.error("a vector of 4-byte integers was expected", before)
        size = struct.unpack("<i", self._take(4))[0]
        return self._array(size, np.dtype("<i4"), before)

    def vector(self) -> np.ndarray:
        """A float or double vector, as stored: float32 or float64 (n,); text gives float32."""
        if not self.binary:
            return self._text_list(np.float32, "numbers")
        before = self.offset
        dtype = _VECTOR_TYPES[self.expect(*_VECTOR_TYPES)]
        return self._array(self.int32(), dtype, before)

    def matrix(self) -> np.ndarray:
        """A float or double matrix, as stored: float32 or float64 (rows, columns); text gives float32."""
        if not self.binary:
            return self._text_matrix()
        before = self.offset
        dtype = _MATRIX_TYPES[self.expect(*_MATRIX_TYPES)]
        num_rows, num_columns = self.int32(), self.int32()
        if num_rows < 0 or num_columns < 0 or (num_rows == 0) != (num_columns == 0):
            raise self.error(f"invalid size {num_rows} x {num_columns} of a matrix", before)
        return self._array(num_rows * num_columns, dtype, before).reshape(num_rows, num_columns)

    def symmetric(self) -> np.ndarray:
        """A symmetric matrix of a binary file (its lower triangle, row by row), as stored: float32 or float64
        (n, n)."""
        before = self.offset
        dtype = _PACKED_TYPES[self.expect(*_PACKED_TYPES)]
        size = self.int32()
        lower = self._array(size * (size + 1) // 2 if size >= 0 else -1, dtype, before)
        matrix = np.empty((size, size), lower.dtype)
        matrix[np.tril_indices(size)] = lower
        matrix.T[np.tril_indices(size)] = lower
        return matrix

    def _take(self, num_bytes: int) -> bytes:
        if num_bytes > self.num_left:
            raise self.error(
                f"the file ends here, {num_bytes} more bytes were expected; it is truncated", len(self._data)
            )
        self.offset += num_bytes
        return self._data[self.offset - num_bytes : self.offset]

    def _array(self, size: int, dtype: np.dtype, before: int) -> np.ndarray:
        if size < 0:
            raise self.error(f"invalid size {size}", before)
        if size * dtype.itemsize > self.num_left:
            found = f"{size} values of {dtype.itemsize} bytes were expected, {self.num_left} bytes are left"
            raise self.error(f"{found}; the file is truncated", before)
        values = np.frombuffer(self._data, dtype, size, self.offset).astype(dtype.newbyteorder("="))
        self.offset += size * dtype.itemsize
        return values

    def _number(self, formats: dict, convert, what: str):
        before = self.offset
        if not self.binary:
            word = self._word()
            try:
                return convert(word)
            except ValueError:
                raise self.error(f"{what} was expected, found {word[:_SHOWN]!r}", before) from None
        size = struct.unpack("<b", self._take(1))[0]
        if size not in formats:
            raise self.error(f"{what} was expected, found the size byte {size}", before)
        return struct.unpack(formats[size], self._take(abs(size)))[0]

    def _word(self) -> str:
        match = _WORD.match(self._data, self.offset)
        if not match:
            raise self.error("the file ends here; it is truncated", len(self._data))
        self.offset = match.end()
        return self._decode(match.group(1), match.start(1))

    def _decode(self, word: bytes, offset: int) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise self.error(f"a token was expected, found {word[:_SHOWN]!r}", offset) from None

    def _glimpse(self, offset: int | None = None) -> str:
        start = self.offset if offset is None else offset
        rest = self._data[start:] if self.binary else self._data[start:].lstrip()
        return repr(rest[:_SHOWN]) if rest else "the end of the file; it is truncated"

    def _bracketed(self) -> bytes:
        """The text between the next pair of brackets."""
        before = self.offset
        if self._word() != "[":
            raise self.error("[ was expected", before)
        end = self._data.find(b"]", self.offset)
        if end < 0:
            raise self.error("] is missing; the file is truncated", before)
        inside, self.offset = self._data[self.offset : end], end + 1
        return inside

    def _text_list(self, dtype, what: str) -> np.ndarray:
        before = self.offset
        try:
            return np.array(self._bracketed().split(), dtype=dtype)
        except (ValueError, OverflowError):
            raise self.error(f"a list of {what} was expected", before) from None

    def _text_matrix(self) -> np.ndarray:
        before = self.offset
        rows = [row.split() for row in self._bracketed().split(b"\n") if row.strip()]
        if not rows:
            return np.zeros((0, 0), np.float32)
        if len({len(row) for row in rows}) != 1:
            raise self.error("the rows of this matrix have different lengths", before)
        try:
            return np.array(rows, dtype=np.float32)
        except ValueError:
            raise self.error("a matrix of numbers was expected", before) from None


class KaldiWriter:
    """Writes one Kaldi object file; as a context manager, it writes the file when the block ends without an
    exception."""

    def __init__(self, path: Path, binary: bool = True):
        self.path, self.binary = Path(path), binary
        self._out = io.BytesIO()
        if binary:
            self._out.write(_BINARY_HEADER)

    def __enter__(self) -> KaldiWriter:
        return self

    def __exit__(self, kind, value, trace) -> None:
        if kind is None:
            self._save()

    def getvalue(self) -> bytes:
        """The bytes written so far, uncompressed."""
        return self._out.getvalue()

    def _save(self) -> None:
        content = self.getvalue()
        if self.path.suffix == ".gz":
            content = gzip.compress(content, compresslevel=6, mtime=0)
        with atomic_write(self.path, "wb") as f:
            f.write(content)

    def token(self, word: str) -> None:
        if not word or re.search(r"\s", word):
            raise ValueError(f"a token cannot be empty or contain white space: {word!r}")
        self._out.write(word.encode() + b" ")

    def newline(self) -> None:
        """A line break in a text file; nothing in a binary one."""
        if not self.binary:
            self._out.write(b"\n")

    def int32(self, value: int) -> None:
        self._sized("<i", 4, int(value))

    def uint32(self, value: int) -> None:
        self._sized("<I", -4, int(value))

    def float32(self, value: float) -> None:
        self._sized("<f", 4, np.float32(value))

    def float64(self, value: float) -> None:
        self._sized("<d", 8, np.float64(value))

    def bool(self, value: bool) -> None:
        self._out.write((b"T" if value else b"F") + (b"" if self.binary else b" "))

    def int_vector(self, values) -> None:
        """Write a vector in the format of Kaldi's WriteIntegerVector."""
        values = np.asarray(values, dtype="<i4").ravel()
        if self.binary:
            self._out.write(b"\x04" + struct.pack("<i", len(values)) + values.tobytes())
        else:
            self._out.write(b"[ " + b"".join(b"%d " % v for v in values.tolist()) + b"]\n")

    def vector(self, values) -> None:
        """Write a vector (n,), in double precision if `values` is float64."""
        values, token = _typed(values, "V")
        if self.binary:
            self.token(token)
            self.int32(len(values))
            self._out.write(values.tobytes())
        else:
            self._out.write(f" [ {_row(values)} ]\n".encode())

    def matrix(self, values) -> None:
        """Write a matrix (rows, columns), in double precision if `values` is float64."""
        values, token = _typed(values, "M")
        if not self.binary:
            lines = "".join(f"\n  {_row(row)}" for row in values)
            self._out.write(f" [{lines} ]\n".encode())
            return
        self.token(token)
        self.int32(values.shape[0])
        self.int32(values.shape[1])
        self._out.write(values.tobytes())

    def symmetric(self, values) -> None:
        """Write a symmetric matrix (n, n), in double precision if `values` is float64; binary files only."""
        lower, token = _typed(np.asarray(values)[np.tril_indices(len(values))], "P")
        self.token(token)
        self.int32(len(values))
        self._out.write(lower.tobytes())

    def _sized(self, code: str, size: int, value) -> None:
        if self.binary:
            self._out.write(struct.pack("<b", size) + struct.pack(code, value))
        else:
            self._out.write(f"{value} ".encode())


def _typed(values, kind: str) -> tuple[np.ndarray, str]:
    """`values` as contiguous little-endian floats, and Kaldi's token for their type."""
    values = np.asarray(values)
    double = values.dtype == np.float64
    return np.ascontiguousarray(values, dtype="<f8" if double else "<f4"), ("D" if double else "F") + kind


def _row(values: np.ndarray) -> str:
    """Numbers in the shortest form that reads back as the same float."""
    return " ".join(map(str, values))
