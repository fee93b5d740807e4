"""Tables whose lines are made, or read, each time they are gone through, so that millions of them are not in memory.

    longer = mapped(table, lambda key: f"x-{key}")        # a Mapping, as Table is one
    write_table(path, Joined([table, longer]))            # one line after the other
    known = at_hand(longer)                               # to look keys up
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import TypeVar

from pyasr.io.tables import Paired, Table

T = TypeVar("T")


class Lazy(Paired[str]):
    """A table that `make`, a function that gives its (key, value) pairs, makes each time it is gone through; it is kept only where it is
    looked into."""

    def __init__(self, make: Callable[[], Iterable[tuple[str, object]]]):
        self.pairs = make

    @cached_property
    def _table(self) -> Table:
        return Table.of(self.pairs())

    def __bool__(self) -> bool:
        return any(True for _ in self.pairs())

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __getitem__(self, key: str) -> str:
        return self._table[key]


class Stored(Lazy):
    """A table that the function `read` reads each time it is gone through."""

    def __init__(self, read: Callable[[], Mapping[str, str]]):
        super().__init__(lambda: read().items())
        self.read = read


class Joined(Lazy):
    """The lines of several tables, those of one after those of the other."""

    def __init__(self, tables: Sequence[Mapping[str, object]]):
        super().__init__(lambda: chain.from_iterable(table.items() for table in tables))
        self._tables = tables

    def orders(self) -> Iterator[Iterable[tuple[str, object]]]:
        """Ways through the lines that are in C order where the lines of each table are: table after table, which holds where all keys of
        one are smaller than those of the next; and the tables merged."""
        firsts = sorted((key, number) for number, table in enumerate(self._tables) for key in islice(table, 1))
        yield chain.from_iterable(self._tables[number].items() for _, number in firsts)
        yield merge(*(table.items() for table in self._tables), key=itemgetter(0))


def mapped(table: Mapping[str, str], key: Callable[[str], str] = str, value: Callable[[str], object] | None = None) -> Lazy:
    """The table with what these functions make of its keys and values."""
    return Lazy(lambda: ((key(name), value(old) if value else old) for name, old in table.items()))


def having(table: Mapping[str, str], keys: Container[str]) -> Lazy:
    """The lines whose keys are among `keys`."""
    return Lazy(lambda: (item for item in table.items() if item[0] in keys))


def at_hand(table: Mapping[str, T]) -> Mapping[str, T]:
    """The same lines, in memory as long as the caller holds them, for a table that is made each time."""
    if isinstance(table, Stored):
        return table.read()
    return Table.of(table.items()) if isinstance(table, Lazy) else table
