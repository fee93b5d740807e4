"""Text tables in little more memory than the size of their files.

    table = Table.read("data/train/text")  # a Mapping {key: rest of the line}, in the order of the file
    longer = Table.of((f"x-{key}", value) for key, value in table.items())

A table of millions of lines is one byte string and the offset of each line in it; a value is converted to a
string at access. A key is found by bisection, or without a search if it follows the previously found one.
"""

from __future__ import annotations

import codecs
import re
from abc import abstractmethod
from array import array
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from copy import copy
from functools import cached_property
from io import BytesIO
from itertools import chain, islice, pairwise
from operator import eq, lt
from pathlib import Path
from typing import TypeVar

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.utf8 import text_of
from pyasr.io.content import iterate_lines, read_content

_BLOCK_BYTES, _BLOCK_LINES = 1 << 20, 1 << 12
_MAX_WIDTH = 64  # maximum length in bytes of keys that are sorted as an array
_BLANKS_TO_LOOK_AT = (
    b"\t",
    b"  ",
    b" \n",
    b"\n ",
    b"\r",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\x1d",
    b"\x1e",
    b"\x1f",
)
_OTHER_BLANKS = tuple(blank.encode() for blank in "\x85\xa0\u1680\u205f\u3000")
_GENERAL_BLANK = re.compile(b"\xe2\x80[\x80-\x8a\xa8\xa9\xaf]")  # U+2000 to U+200A, U+2028, U+2029, U+202F
T = TypeVar("T")


def split_line(line: str) -> tuple[str, str]:
    """(key, value) of a line: its first word and the rest, without surrounding blanks; '' if missing."""
    if "\t" in line:
        words = line.split(maxsplit=1)
        return (words[0] if words else ""), (words[1].strip() if len(words) > 1 else "")
    key, _, value = line.strip().partition(" ")
    return key, value.strip()


class Paired(Mapping[str, T]):
    """A Mapping that is iterated by the method `pairs()`."""

    @abstractmethod
    def pairs(self) -> Iterable[tuple[str, T]]:
        """All (key, value) pairs."""

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.pairs())

    def items(self) -> ItemsView[str, T]:
        """The (key, value) pairs in the order of the table."""
        return _Items(self)

    def values(self) -> ValuesView[T]:
        """The values in the order of the table."""
        return _PairedValues(self)

    def __or__(self, others: Mapping[str, T]) -> dict[str, T]:
        return dict(self.items()) | dict(others.items())

    def __ror__(self, others: Mapping[str, T]) -> dict[str, T]:
        return dict(others.items()) | dict(self.items())


class Table(Paired[str]):
    """{key: value} of a text table, in its order. `lines` are UTF-8 lines `KEY VALUE` or `KEY`, each with a
    line break and without other blanks at its ends; of several lines with the same key the last one is valid.
    """

    def __init__(self, lines: bytes):
        self.content, self._begins, self._next = lines, _begins_of(lines), 0
        self._last: tuple[str | None, int | None] = None, None  # the last key searched for, and its line

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in a file, plain or compressed.

        Raises UserError with file and line for an empty line, a duplicate key, text that is not UTF-8, or a
        missing file.
        """
        table = cls(_plain(_utf8(read_content(path), path)))
        if table._order is not None:
            table._check_lines(path)
        return table

    @classmethod
    def of(cls, items: Iterable[tuple[str, object]]) -> Table:
        """The table of (key, value) pairs."""
        return cls(_joined(map(_line, items))).without_doubled()

    @classmethod
    def of_keys(cls, keys: Iterable[str]) -> Table:
        """A set of keys, without values."""
        return cls(_joined(f"{key}\n" for key in keys))

    @cached_property
    def _order(self) -> array | None:
        """Numbers of the lines in C order of their keys; None if the lines are in this order."""
        return None if self.is_in_order else self._sorted()

    def __len__(self) -> int:
        return len(self._begins) - 1

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.line_of(key) is not None

    def __getitem__(self, key: str) -> str:
        number = self.line_of(key)
        if number is None:
            raise KeyError(key)
        return self._line(number).partition(b" ")[2].decode()

    def without_doubled(self) -> Table:
        """The table with one line per key: at the position of the first line, with the value of the last."""
        return Table.of(dict(self.items()).items()) if any(True for _ in self.repeated()) else self

    def where(self, wanted: Iterable[bool]) -> Table:
        """The lines for which `wanted`, one bool per line, is true."""
        return Table(self.taken(np.flatnonzero(np.fromiter(wanted, bool, len(self)))))

    def taken(self, numbers: np.ndarray) -> bytes:
        """The lines with these numbers, which are ascending and start at 0, with their line breaks."""
        if not len(numbers):
            return b""
        begins = np.frombuffer(self._begins, self._begins.typecode)
        lasts = np.append(np.flatnonzero(np.diff(numbers) > 1), len(numbers) - 1)  # of each run of lines
        firsts = np.append(0, lasts[:-1] + 1)
        spans = map(slice, begins[numbers[firsts]].tolist(), begins[numbers[lasts] + 1].tolist())
        return b"".join(map(self.content.__getitem__, spans))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """All (key, value) pairs."""
        for lines in self._blocks():
            yield from _pairs_of(lines)

    def line_blocks(self) -> Iterator[list[str]]:
        """The lines, without their line breaks, some thousands at a time."""
        return (lines.decode().split("\n") for lines in self._blocks())

    def has_keys_of(self, other: Table) -> bool:
        """Whether the keys of two tables are the same, in the same order."""
        return len(self) == len(other) and all(map(eq, self._key_blocks(), other._key_blocks()))

    def sorted_pairs(self) -> Iterator[tuple[str, str]]:
        """All (key, value) pairs in C order."""
        if self._order is None:
            return self.pairs()
        lines = (self._line(number).decode().partition(" ") for number in self._order)
        return ((key, value) for key, _, value in lines)

    def sorted_lines(self) -> Iterator[bytes]:
        """The content of a file with the table in C order, in parts of whole lines."""
        if self._order is None:
            yield self.content
        else:
            for begin in range(0, len(self), _BLOCK_LINES):
                yield b"".join(
                    self._line(number) + b"\n" for number in self._order[begin : begin + _BLOCK_LINES]
                )

    def in_order(self) -> Table:
        """The same lines in C order."""
        return self if self._order is None else Table(b"".join(self.sorted_lines()))

    @cached_property
    def is_in_order(self) -> bool:
        """Whether the lines are in C order: each key is greater than its predecessor, and no key is empty."""
        before = b""
        for keys in self._key_blocks():
            if not before < keys[0] or not all(map(lt, keys, islice(keys, 1, None))):
                return False
            before = keys[-1]
        return True

    @property
    def order(self) -> range | np.ndarray:
        """The numbers of the lines, from 0, in the order of their keys."""
        return range(len(self)) if self._order is None else np.asarray(self._order)

    def key(self, number: int) -> str:
        """The key of the line with this number, from 0."""
        return self._key(number).decode()

    @property
    def is_plain(self) -> bool:
        """Whether certainly no key contains a blank of any kind."""
        return not any(map(_may_have_blanks, self._blocks()))

    def _blocks(self) -> Iterator[bytes]:
        """The lines in blocks of many lines, each without its last line break."""
        for first in range(0, len(self), _BLOCK_LINES):
            last = min(first + _BLOCK_LINES, len(self))
            yield self.content[self._begins[first] : self._begins[last] - 1]

    def _key_blocks(self) -> Iterator[list[bytes]]:
        return ([line.partition(b" ")[0] for line in lines.split(b"\n")] for lines in self._blocks())

    def _line(self, number: int) -> bytes:
        return self.content[self._begins[number] : self._begins[number + 1] - 1]

    def _key(self, number: int) -> bytes:
        return self.content[self._begins[number] : self._begins[number + 1] - 1].partition(b" ")[0]

    def line_of(self, key: str) -> int | None:
        """The number of the line with this key, from 0; None if there is no such line."""
        if key != self._last[0]:
            at, at_hand = self._place(wanted := key.encode("utf-8", "surrogatepass"))
            is_there = at_hand == wanted
            self._next, self._last = at + is_there, (key, at if is_there else None)
        return self._last[1]

    def _place(self, wanted: bytes) -> tuple[int, bytes | None]:
        """As `_bisect`, without a search if the key is, or would be, directly after the previous key searched
        for."""
        at = self._next
        at_hand = self._key(at) if at < len(self) else None
        is_here = at_hand == wanted or self._order is None and self._is_gap(wanted, at, at_hand)
        return (at, at_hand) if is_here else self._bisect(wanted)

    def _is_gap(self, wanted: bytes, at: int, at_hand: bytes | None) -> bool:
        """Whether a key is between those of lines `at - 1` and `at`; the latter is `at_hand`. The table must
        be in C order."""
        return (at_hand is None or wanted < at_hand) and (at == 0 or self._key(at - 1) < wanted)

    def _bisect(self, wanted: bytes) -> tuple[int, bytes | None]:
        """(line, its key) of the first key in C order that is not smaller; (number of lines, None) if all
        keys are smaller."""
        low, high, order = 0, len(self), self._order
        while low < high:
            middle = (low + high) // 2
            low, high = (
                (middle + 1, high)
                if self._key(middle if order is None else order[middle]) < wanted
                else (low, middle)
            )
        at = low if order is None or low == len(self) else order[low]
        return at, self._key(at) if at < len(self) else None

    def _sorted(self) -> array:
        """Numbers of the lines in C order of their keys."""
        width = max(len(key) for keys in self._key_blocks() for key in keys)
        # numpy would use too much padding, or not distinguish it from keys
        if width > _MAX_WIDTH or b"\0" in self.content:
            keys = list(chain.from_iterable(self._key_blocks()))
            return array(self._begins.typecode, sorted(range(len(keys)), key=keys.__getitem__))
        packed = np.concatenate([np.array(some, f"S{max(width, 1)}") for some in self._key_blocks()])
        return array(
            self._begins.typecode, np.argsort(packed, kind="stable").astype(self._begins.typecode).tobytes()
        )

    def repeated(self) -> Iterator[int]:
        """Numbers of the lines whose key an earlier line has."""
        for before, number in pairwise(self._order or ()):
            if self._key(before) == self._key(number):
                yield number

    def _check_lines(self, path: Path) -> None:
        """Raise UserError with the line number for the first empty line or duplicate key."""
        before, faults = None, []
        for number in self._order or ():
            key = self._key(number)
            if not key:
                faults.append((number, "empty line; remove it"))
            elif key == before:
                faults.append((number, f"duplicate key '{key.decode()}'; keep one of the two lines"))
            before = key
        if faults:
            number, fault = min(faults)
            raise UserError(f"{path}:{number + 1}: {fault}")


class TableBuilder:
    """Builds a table line by line."""

    def __init__(self):
        self._lines = BytesIO()

    def add(self, key: str, value: object = "") -> None:
        """Add a line; of several lines with the same key the last one is valid."""
        self._lines.write(_line((key, value)).encode())

    def table(self) -> Table:
        """The table of the lines added so far."""
        return Table(self._lines.getvalue()).without_doubled()


class Lines(Sequence[str]):
    """The lines of a UTF-8 text, converted to strings at access; `part` is applied to each line."""

    def __init__(self, content: bytes, part: Callable[[str], str] = str):
        self._content, self._begins, self._part = content, _begins_of(content), part
        if content and not content.endswith(b"\n"):
            self._begins.append(len(content) + 1)

    def parts(self, part: Callable[[str], str]) -> Lines:
        """The same lines with the function `part` applied to each."""
        lines = copy(self)
        lines._part = part
        return lines

    def __len__(self) -> int:
        return len(self._begins) - 1

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        number = range(len(self))[number]
        return self._part(self._content[self._begins[number] : self._begins[number + 1] - 1].decode())

    def __iter__(self) -> Iterator[str]:
        for block in _blocks_of(self._content):
            yield from map(self._part, block.decode().removesuffix("\n").split("\n"))


def key_blocks(keys: Iterable[str]) -> list[str]:
    """The keys in strings, separated by line breaks, with as many keys in each as `Table.line_blocks` has
    lines in a block."""
    keys, blocks = iter(keys), list[str]()
    while some := "\n".join(islice(keys, _BLOCK_LINES)):
        blocks.append(some)
    return blocks


def pairs_of_file(path: Path) -> Iterator[tuple[str, str]]:
    """The (key, value) pairs of `Table.read(path)`, with some thousand lines in memory at a time. It does not
    look for the faults that `Table.read` refuses."""
    lines = iterate_lines(path)
    while block := b"".join(islice(lines, _BLOCK_LINES)):
        yield from _pairs_of((_plain_block(block) if _may_have_blanks(block) else block).removesuffix(b"\n"))


def plain_table(content: bytes) -> Table | None:
    """The table in the bytes of a file, if its lines have the form that `write_table` writes, in any order;
    None otherwise."""
    if (
        not content.endswith(b"\n")
        or content.startswith(codecs.BOM_UTF8)
        or any(map(_may_have_blanks, _blocks_of(content)))
    ):
        return None
    try:
        for block in _blocks_of(content) if not content.isascii() else ():
            block.decode()
    except UnicodeDecodeError:
        return None
    return Table(content)


class _Items(ItemsView[str, T]):
    def __init__(self, table: Paired[T]):
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter(self._table.pairs())


class _PairedValues(ValuesView[T]):
    def __init__(self, table: Paired[T]):
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._table.pairs())


class Parsed(Paired[T]):
    """A table whose values are those of another table, converted by `parse` at access."""

    def __init__(self, table: Mapping[str, str], parse: Callable[[str], T]):
        self.table, self._parse = table, parse

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __contains__(self, key: object) -> bool:
        return key in self.table

    def __getitem__(self, key: str) -> T:
        return self._parse(self.table[key])

    def pairs(self) -> Iterator[tuple[str, T]]:
        """All (key, parsed value) pairs."""
        return ((key, self._parse(value)) for key, value in self.table.items())


def _begins_of(lines: bytes) -> array:
    """The begin of each line, and the end of the last one."""
    begins, content = array("I" if len(lines) < 1 << 32 else "Q", [0]), np.frombuffer(lines, np.uint8)
    for place in range(0, len(lines), _BLOCK_BYTES):
        ends = np.flatnonzero(content[place : place + _BLOCK_BYTES] == ord("\n"))
        begins.frombytes((ends + (place + 1)).astype(begins.typecode).tobytes())
    return begins


class NotInOrder(Exception):
    """The keys of a table are not ascending."""


def lines_in_order(pairs: Iterable[tuple[str, object]], at_once: int = 0) -> Iterator[bytes]:
    """The content of a file with these (key, value) pairs, in parts of `at_once` lines, or of some thousands.
    Raises NotInOrder if a key is not greater than its predecessor."""
    pairs, before = iter(pairs), ""
    while some := list(islice(pairs, at_once or _BLOCK_LINES)):
        keys = [key for key, _ in some]
        if not before < keys[0] or not all(map(lt, keys, islice(keys, 1, None))):
            raise NotInOrder
        before = keys[-1]
        yield "".join(map(_line, some)).encode()


def _pairs_of(lines: bytes) -> Iterator[tuple[str, str]]:
    """(key, value) of some lines, the last without a line break."""
    for line in lines.decode().split("\n"):
        key, _, value = line.partition(" ")
        yield key, value


def _line(item: tuple[str, object]) -> str:
    """The line of a (key, value) pair, with its line break."""
    key, value = item
    return f"{key} {value}".rstrip() + "\n"


def _joined(lines: Iterable[str]) -> bytes:
    lines, joined = iter(lines), BytesIO()
    while some := "".join(islice(lines, _BLOCK_LINES)):
        joined.write(some.encode())
    return joined.getvalue()  # not a copy


def _blocks_of(content: bytes) -> Iterator[bytes]:
    """A text in blocks of whole lines."""
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin + _BLOCK_BYTES) + 1 or len(content)
        yield content[begin:end]
        begin = end


def _utf8(content: bytes, path: Path) -> bytes:
    """`content`. Raises UserError as `text_of` if it is not UTF-8."""
    try:
        for block in _blocks_of(content) if not content.isascii() else ():
            block.decode()
    except UnicodeDecodeError:
        text_of(content, path)
    return content


def _plain(content: bytes) -> bytes:
    """The lines of a table in the form that `Table` requires; `content` itself if it has this form."""
    if content and not content.endswith(b"\n"):
        content += b"\n"
    if not any(map(_may_have_blanks, _blocks_of(content))):
        return content
    return b"".join(
        _plain_block(block) if _may_have_blanks(block) else block for block in _blocks_of(content)
    )


def _may_have_blanks(block: bytes) -> bool:
    """Whether lines may have blanks other than single spaces after the key and between words."""
    if block.startswith(b" ") or any(blank in block for blank in _BLANKS_TO_LOOK_AT):
        return True
    return not block.isascii() and (
        any(blank in block for blank in _OTHER_BLANKS) or bool(_GENERAL_BLANK.search(block))
    )


def _plain_block(block: bytes) -> bytes:
    pairs = map(split_line, block.decode().removesuffix("\n").split("\n"))
    return "".join(f"{key} {value}\n" if value else f"{key}\n" for key, value in pairs).encode()
