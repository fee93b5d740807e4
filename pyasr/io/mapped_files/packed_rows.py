"""Files of many short texts, such as the names of millions of utterances, for processes that read only some
of them.

    save_rows(path, ["a-01", "a-02", "b-01"])
    list(read_rows(path, np.array([0, 2])))       # ["a-01", "b-01"]

PATH has the rows in UTF-8, one after the other; PATH.ends, int64, has the end of each row. A row takes 8
bytes in addition to its own, on disk and in memory; it is converted to a string at access. `save_numbers` and
`read_numbers` do the same for rows of integers.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.content import readable

_BLOCK = 1 << 16


class PackedRows(Sequence[str]):
    """Rows in memory: `content` in UTF-8, `ends` int64 (len,)."""

    def __init__(self, content: bytes | bytearray, ends: np.ndarray | array[int]):
        self._content, self._ends = content, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        return self._content[self._ends[number - 1] if number else 0 : self._ends[number]].decode()


class GrowingRows(PackedRows):
    """Rows in memory, to which rows can be appended."""

    _content: bytearray
    _ends: array[int]

    def __init__(self):
        super().__init__(bytearray(), array("q"))

    def append(self, row: str) -> None:
        """Append a row."""
        self._content += row.encode()
        self._ends.append(len(self._content))


class StoredRows(Sequence[str]):
    """The rows of a file, which are read at each access; equal to any sequence of the same strings."""

    def __init__(self, path: Path):
        self.path, self._num_rows = Path(path), num_rows(path)

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return read_rows(self.path, np.array([number % len(self)]))[0]

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), _BLOCK):
            yield from read_rows(self.path, np.arange(begin, min(begin + _BLOCK, len(self))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    def take(self, numbers: np.ndarray) -> list[str]:
        """The rows with the ascending `numbers`."""
        return list(read_rows(self.path, numbers))


def save_rows(path: Path, rows: Iterable[str]) -> None:
    """Write texts atomically; PATH appears after PATH.ends."""
    rows, end = iter(rows), 0
    with atomic_write(path, "wb") as text, atomic_write(_ends_of(path), "wb") as ends:
        while block := [row.encode() for row in itertools.islice(rows, _BLOCK)]:
            text.write(b"".join(block))
            borders = end + np.cumsum([len(row) for row in block], dtype=np.int64)
            ends.write(borders.tobytes())
            end = int(borders[-1])


def num_rows(path: Path) -> int:
    """The number of rows of a file."""
    with readable(_ends_of(path)):
        return _ends_of(path).stat().st_size // 8


def read_rows(path: Path, numbers: np.ndarray) -> PackedRows:
    """The rows with the ascending `numbers`, int64 (n,). These rows and one block are in memory. Raises
    UserError for a damaged file."""
    parts, lengths = [], [np.zeros(0, np.int64)]
    with readable(path), open(path, "rb") as text, open(_ends_of(path), "rb") as ends:
        for block in np.unique(numbers // _BLOCK).tolist():
            first, last = np.searchsorted(numbers, [block * _BLOCK, (block + 1) * _BLOCK])
            found = _of_block(text, ends, block, numbers[first:last] - block * _BLOCK, path)
            parts.append(b"".join(found))
            lengths.append(np.fromiter(map(len, found), np.int64, len(found)))
    return PackedRows(b"".join(parts), np.cumsum(np.concatenate(lengths)))


def read_numbers(path: Path, numbers: np.ndarray, num_columns: int) -> np.ndarray:
    """The rows with the ascending `numbers` of a file of int32 with `num_columns` columns, (n, num_columns).
    These rows and one block are in memory."""
    parts = [np.zeros((0, num_columns), np.int32)]
    with readable(path), open(path, "rb") as file:
        for block in np.unique(numbers // _BLOCK).tolist():
            first, last = np.searchsorted(numbers, [block * _BLOCK, (block + 1) * _BLOCK])
            file.seek(4 * num_columns * block * _BLOCK)
            content = np.frombuffer(file.read(4 * num_columns * _BLOCK), np.int32).reshape(-1, num_columns)
            parts.append(content[numbers[first:last] - block * _BLOCK])
    return np.concatenate(parts)


def save_numbers(path: Path, rows: Iterable[Sequence[int]], num_columns: int) -> None:
    """Write rows of `num_columns` integers for `read_numbers`, atomically."""
    rows = iter(rows)
    with atomic_write(path, "wb") as file:
        while block := list(itertools.islice(rows, _BLOCK)):
            file.write(np.array(block, np.int32).reshape(-1, num_columns).tobytes())


def _of_block(text, ends, block: int, within: np.ndarray, path: Path) -> list[bytes]:
    """The rows with the numbers `within` one block of a file."""
    ends.seek(8 * max(block * _BLOCK - 1, 0))
    borders = np.frombuffer(ends.read(8 * (_BLOCK + bool(block))), np.int64)
    borders = borders if block else np.concatenate([[0], borders])
    if within[-1] + 1 >= len(borders):
        raise UserError(f"{path}: row {block * _BLOCK + within[-1]} is missing; run the same command again")
    text.seek(borders[0])
    content = text.read(int(borders[within[-1] + 1] - borders[0]))
    begins, stops = (borders[within + more] - borders[0] for more in (0, 1))
    return [content[begin:stop] for begin, stop in zip(begins.tolist(), stops.tolist())]


def _ends_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.ends")
