"""Tables whose lines are computed or read at each iteration, so that millions of lines are not in memory.

longer = mapped(table, lambda key: f"x-{key}")        # a Mapping, like Table
write_table(path, Joined([table, longer]))            # writes line after line
known = at_hand(longer)                               # in memory, for access by key
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeVar, overload

from pyasr.io.tables import Paired, Table

T = TypeVar("T")


class Lazy(Paired[str]):
    """A table whose (key, value) pairs are computed by the function `make` at each iteration. Access by key
    loads the table into memory."""

    def __init__(self, make: Callable[[], Iterable[tuple[str, Any]]]):
        self._make = make

    def pairs(self) -> Iterable[tuple[str, Any]]:
        """All (key, value) pairs, computed at each call."""
        return self._make()

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
    """A table that the function `read` reads at each iteration; `pairs` returns its lines one by one, by
    default from `read`."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, str]],
        pairs: Callable[[], Iterable[tuple[str, object]]] | None = None,
    ):
        super().__init__(pairs or (lambda: read().items()))
        self.read = read


class Joined(Lazy):
    """The concatenated lines of several tables."""

    def __init__(self, tables: Sequence[Mapping[str, object]]):
        super().__init__(lambda: chain.from_iterable(table.items() for table in tables))
        self._tables = tables

    def orders(self) -> Iterator[Iterable[tuple[str, object]]]:
        """Candidate orders of the lines, for tables that are in C order: table after table, which is in C
        order if all keys of a table are smaller than those of the next; then the tables merged."""
        firsts = sorted(
            (key, number) for number, table in enumerate(self._tables) for key in islice(table, 1)
        )
        yield chain.from_iterable(self._tables[number].items() for _, number in firsts)
        yield merge(*(table.items() for table in self._tables), key=itemgetter(0))


def mapped(
    table: Mapping[str, str], key: Callable[[str], str] = str, value: Callable[[str], object] | None = None
) -> Lazy:
    """The table with these functions applied to its keys and values."""
    return Lazy(lambda: ((key(name), value(old) if value else old) for name, old in table.items()))


def having(table: Mapping[str, str], keys: Container[str]) -> Lazy:
    """The lines whose keys are among `keys`."""
    return Lazy(lambda: (item for item in table.items() if item[0] in keys))


@overload
def at_hand(table: Lazy) -> Mapping[str, str]: ...


@overload
def at_hand(table: Mapping[str, T]) -> Mapping[str, T]: ...


def at_hand(table: Mapping) -> Mapping:
    """The table in memory, for a table that is computed or read at each iteration; other tables unchanged."""
    if isinstance(table, Stored):
        return at_hand(table.read())
    return Table.of(table.items()) if isinstance(table, Lazy) else table
