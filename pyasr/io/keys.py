"""Compact keys of tables: as sequences, grouped by a value, and with a number for each key.

    # keys of a Table in C order: at most 8 bytes each in addition to the table
    utterances = Keys(utt2spk)
    of_speakers = Groups(utterances, speakers)         # a Mapping {speaker: Keys}
    seconds = Numbers(utterances, np.array([...]))     # a Mapping {utterance: float}

A key is converted to a string only at access.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from operator import eq, ne
from typing import SupportsIndex, TypeVar, overload

import numpy as np

from pyasr.io.tables import Paired, Parsed, Table

_DIGEST_BYTES, _MAX_NEW = 16, 1 << 16
Number = TypeVar("Number", bound=float)


class Keys(Sequence[str]):
    """A sequence of keys of a table; equal to any sequence of the same strings.

    lines  line numbers of the keys in the table, from 0: a range or an integer array; None: all, in C order
           of the keys
    """

    def __init__(self, table: Table, lines: range | np.ndarray | None = None):
        self.table, self.lines = table, table.order if lines is None else lines

    @classmethod
    def of(cls, keys: Iterable[str]) -> Keys:
        """The given keys, which must be distinct, in their order."""
        return cls.by_line(Table.of_keys(keys))

    @classmethod
    def by_line(cls, table: Mapping[str, object]) -> Keys:
        """The keys of a Table, or of a Parsed table, in the order of its lines."""
        lines = table.table if isinstance(table, Parsed) else table
        assert isinstance(lines, Table)
        return cls(lines, range(len(lines)))

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Keys: ...

    def __getitem__(self, place: SupportsIndex | slice) -> str | Keys:
        if isinstance(place, slice):
            return Keys(self.table, self.lines[place])
        return self.table.key(self.lines[place])

    def __iter__(self) -> Iterator[str]:
        if self._are_all:
            return iter(self.table)
        return map(self.table.key, self.lines if isinstance(self.lines, range) else self.lines.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"

    @property
    def _are_all(self) -> bool:
        """Whether these are the keys of all lines, in the order of the lines."""
        return isinstance(self.lines, range) and self.lines == range(len(self.table))

    def take(self, places: np.ndarray) -> Keys:
        """The keys at the given indices."""
        lines = self.lines
        if isinstance(lines, range):
            return Keys(self.table, lines.start + lines.step * places)
        return Keys(self.table, np.asarray(lines)[places])

    def line_numbers(self) -> np.ndarray:
        """The line numbers of the keys."""
        lines = self.lines
        return (
            np.arange(lines.start, lines.stop, lines.step) if isinstance(lines, range) else np.asarray(lines)
        )

    def place(self, key: str) -> int | None:
        """The index of `key` in this sequence, which must be in C order; None if it is absent."""
        if self._are_all and self.table.is_in_order:
            return self.table.line_of(key)
        place = bisect_left(self, key)
        return place if place < len(self) and self[place] == key else None

    def shared_out(self, lists: np.ndarray, num: int) -> list[Keys]:
        """The keys divided into `num` lists; `lists` (len,) is the list of each key, from 0."""
        order, ends = np.argsort(lists, kind="stable"), np.cumsum(np.bincount(lists, minlength=num))
        return [self.take(places) for places in np.split(order, ends[:-1])]


def distinct(values: Iterable[str]) -> tuple[Table, np.ndarray]:
    """(table of the distinct values in order of first occurrence; line of each value in it, int64)"""
    known: dict[str, int] = {}
    lines = np.fromiter((known.setdefault(value, len(known)) for value in values), np.int64)
    return Table.of_keys(known), lines


def ranks(values: Iterable[str]) -> np.ndarray:
    """The rank of each value among the distinct values in C order, int64 (number of values,)."""
    table = Table.of_keys(values)
    found, in_order = np.zeros(len(table), np.int64), Keys(table)
    found[1:] = np.cumsum(np.fromiter(map(ne, in_order, islice(in_order, 1, None)), np.int64))
    found[in_order.line_numbers()] = found.copy()
    return found


def first_keys(table: Table, is_preferred: Callable[[str, str], bool]) -> Table:
    """{value: the first key in C order that has it, if possible one for which `is_preferred(key, value)`
    holds}, in C order."""
    of_keys, keys = ranks(value for _, value in table.sorted_pairs()), Keys(table)
    others = np.fromiter(
        (not is_preferred(key, value) for key, value in table.sorted_pairs()), bool, len(table)
    )
    order = np.lexsort((others, of_keys))
    firsts = order[np.flatnonzero(np.diff(of_keys[order], prepend=-1))]
    return Table.of((table[key], key) for key in keys.take(firsts))


class Groups(Mapping[str, Keys]):
    """{value: the keys that have it, in their order}, in the order of the first key of each value.

    keys    all keys
    values  the value of each key

    `members`, int64 (number of keys,), are the indices of the keys, ordered by group; those of group i are
    `members[borders[i]:borders[i + 1]]`.
    """

    def __init__(self, keys: Keys, values: Iterable[str]):
        self._keys, (self.names, of_keys) = keys, distinct(values)
        self.members = np.argsort(of_keys, kind="stable")
        self.borders = np.concatenate([[0], np.cumsum(np.bincount(of_keys, minlength=len(self.names)))])

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Keys:
        line = self.names.line_of(name)
        if line is None:
            raise KeyError(name)
        return self.group(line)

    def group(self, number: int) -> Keys:
        """The keys of the group with this number, from 0."""
        return self._keys.take(self.members[self.borders[number] : self.borders[number + 1]])


class Numbers(Paired[Number]):
    """{key: number}; `keys` are in C order, `array` (number of keys,) are the numbers."""

    def __init__(self, keys: Keys, array: np.ndarray):
        self.keys_in_order, self.array = keys, array

    def __len__(self) -> int:
        return len(self.array)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.keys_in_order.place(key) is not None

    def __getitem__(self, key: str) -> Number:
        place = self.keys_in_order.place(key)
        if place is None:
            raise KeyError(key)
        return self.array[place].item()

    def pairs(self) -> Iterator[tuple[str, Number]]:
        """All (key, number) pairs."""
        return zip(self.keys_in_order, self.values())

    def values(self):
        """The numbers, in the order of the keys."""
        return memoryview(self.array)


class KnownNames:
    """A set of names, stored as digests and numbers, 24 bytes per name. Names are numbered from 0 in the
    order of their addition."""

    def __init__(self):
        # sorted by digest
        self._digests, self._numbers = np.zeros(0, f"S{_DIGEST_BYTES}"), np.zeros(0, np.int64)
        self._new: dict[bytes, int] = {}  # {digest: number} of the names added last

    def __len__(self) -> int:
        return len(self._numbers) + len(self._new)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.number(name) is not None

    def number(self, name: str) -> int | None:
        """The number of a name; None if it is not in the set."""
        return self._number(_digest(name))

    def add(self, name: str) -> bool:
        """Add a name; whether it was new."""
        digest = _digest(name)
        if self._number(digest) is not None:
            return False
        self._new[digest] = len(self)
        if len(self._new) == _MAX_NEW:
            self._merge()
        return True

    def _number(self, digest: bytes) -> int | None:
        if digest in self._new:
            return self._new[digest]
        place = int(np.searchsorted(self._digests, np.bytes_(digest)))
        is_there = place < len(self._digests) and self._digests[place] == digest.rstrip(b"\0")
        return int(self._numbers[place]) if is_there else None

    def _merge(self) -> None:
        digests = np.concatenate([self._digests, np.array(list(self._new), self._digests.dtype)])
        numbers = np.concatenate([self._numbers, np.array(list(self._new.values()), np.int64)])
        order = np.argsort(digests, kind="stable")
        self._digests, self._numbers, self._new = digests[order], numbers[order], {}


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()
