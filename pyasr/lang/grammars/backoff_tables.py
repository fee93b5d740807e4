"""Tables of a back-off model, built from an ARPA file that is read in pieces: G of
`pyasr.lang.grammars.grammar`, without the transducer.

Two readers read the file, one a section ahead of the other. The first counts the n-grams of an order, which
determines the places of their arcs and the states that G bypasses; the second enters them. Each n-gram of the
highest order takes 12 bytes, and each one that is also a history 32. The construction takes up to half as
much in addition.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.content import ContentReader
from pyasr.io.mapped_files.mapped import MappedTables
from pyasr.lang.grammars import backoff_tables_kernels as kernels
from pyasr.lang.grammars.grammar import BOS, EOS, check_symbols
from pyasr.lang.ngrams.arpa_reader import ArpaReader, Piece, occurs_twice, pieces_of
from pyasr.lang.symbols import BACKOFF, EPSILON, SymbolTable

_LN10 = math.log(10.0)
_MAX_STATES = (1 << 31) - 2


def tables_of_arpa(path: Path, words: SymbolTable) -> MappedTables:
    """The result of `tables_of_fst` for G, for an ARPA model over the ids of `words`.

    Raises UserError as `read_arpa` does; of repeated n-grams, only those whose words are all in `words` are
    detected.
    """
    check_symbols(words)
    with ContentReader(path) as first, ContentReader(path) as second:
        ahead = ArpaReader(first, path)
        return _TableBuilder(ahead, ArpaReader(second, path, ahead), words, first.most_bytes).tables()


class _TableBuilder:
    """Fills `kernels.Growing` by orders. `ahead` is read before `reader`, and detects errors in the file."""

    def __init__(self, ahead: ArpaReader, reader: ArpaReader, words: SymbolTable, most_bytes: int):
        self.ahead, self.reader, self.path, self.order = ahead, reader, reader.path, reader.order
        self.symbols, self.start, self.num_states, self.num_arcs = words, 0, 1, 0
        # the header may be wrong
        room = [min(count, most_bytes // (2 * n + 2)) for n, count in enumerate(reader.counts, 1)]
        states, arcs = 1 + sum(room[:-1]), sum(room)
        if states > _MAX_STATES:
            raise UserError(
                f"{self.path}: {states} histories, but at most {_MAX_STATES} are possible; prune it with "
                "utils/prune_lm.py"
            )
        self.lm = kernels.Growing(
            words[BOS],
            words[EOS],
            np.full(max(words.ids.values()) + 1, -1, np.int32),
            np.zeros(states + 2, np.int64),
            np.empty(arcs, np.int32),
            np.empty(arcs, np.int32),
            np.empty(states, np.float32),
            np.empty(states, np.int32),
            np.empty(states),
            np.empty(states, bool),
        )
        self.costs = np.empty(arcs, np.float32)
        self.lm.finals[0] = np.inf
        self._known: np.ndarray | None = None

    def tables(self) -> MappedTables:
        """Tables of the whole file."""
        # states whose arcs come next; (first arc, costs) of the previous order
        first, last, waiting = 0, 1, None
        for n in range(1, self.order + 1):
            num_histories = self._count(n, first, last)
            if waiting:
                kernels.settle_costs(self.lm, *waiting, self.costs)
            first_arc, self.num_arcs = self.num_arcs, int(self.lm.offsets[last + 1])
            waiting = self._fill(n, first, last, first_arc, num_histories)
            first, last = last, self.num_states
        self.ahead.end()
        return self._closed()

    def _count(self, n: int, first: int, last: int) -> int:
        """Reserve places for the arcs of the states first:last. Returns the number of histories."""
        num_histories = 0
        for piece in self.ahead.pieces(n):
            found, twice = kernels.count(self.lm, self._ids(piece), -_LN10 * piece.logprob)
            if twice >= 0:
                self._refuse_twice(
                    n, int(kernels.sources(self.lm, self._ids(piece)[twice : twice + 1])[0]), self.lm.eos
                )
            num_histories += found
        kernels.begin_arcs(self.lm, first, last)
        kernels.mark_bypassed(self.lm, first, last, self.start)
        return num_histories

    def _fill(
        self, n: int, first: int, last: int, first_arc: int, num_histories: int
    ) -> tuple[int, np.ndarray] | None:
        """Enter the arcs of order `n` and their target states. Returns (first arc, costs: float64), or None
        for the highest order."""
        is_highest = n == self.order
        costs = self.costs[first_arc : self.num_arcs] if is_highest else np.empty(self.num_arcs - first_arc)
        if not is_highest:
            self.lm.finals[last : last + num_histories] = np.inf
        for piece in self.reader.pieces(n):
            if is_highest:
                kernels.fill_highest(self.lm, self._ids(piece), -_LN10 * piece.logprob, costs, first_arc)
            else:
                self.num_states, start = kernels.fill_histories(
                    self.lm,
                    self._ids(piece),
                    -_LN10 * piece.logprob,
                    -_LN10 * piece.backoff,
                    costs,
                    first_arc,
                    self.num_states,
                )
                self.start = max(start, self.start)
        state, word = kernels.sort_arcs(self.lm, first, last, costs, first_arc)
        if state >= 0:
            self._refuse_twice(n, state, word)
        return None if is_highest else (first_arc, costs)

    def _ids(self, piece: Piece) -> np.ndarray:
        """Ids in words.txt of the words of n-grams, -1 for words that it lacks."""
        if self._known is None:
            names = (
                -1 if word in (EPSILON, BACKOFF) else self.symbols.get(word, -1) for word in self.ahead.words
            )
            self._known = np.fromiter(names, np.int32)
        return self._known[piece.ids]

    def _refuse_twice(self, n: int, state: int, word: int) -> None:
        """Raise UserError, with both lines, for the repeated n-gram of a word after the history `state`."""
        lines: list[int] = []
        for piece in pieces_of(lambda: ContentReader(self.path), self.path, n):
            ids = self._ids(piece)
            for row in np.flatnonzero((kernels.sources(self.lm, ids) == state) & (ids[:, -1] == word)):
                lines.append(piece.line_of(int(row)))
                ngram = " ".join(self.ahead.words[number] for number in piece.ids[row])
        raise occurs_twice(self.path, n, ngram, *lines[:2])

    def _closed(self) -> MappedTables:
        lm, backoff_costs = self.lm, np.empty(self.num_states, np.float32)
        num_states, numbers = kernels.close(lm, self.num_states, self.num_arcs, backoff_costs)
        arcs, states = slice(self.num_arcs), slice(num_states)
        offsets = lm.offsets[: num_states + 1]
        return MappedTables(
            {
                "offsets": offsets,
                "words": lm.words[arcs],
                "costs": self.costs[arcs],
                "targets": lm.targets[arcs],
                "backoffs": lm.backoffs[states],
                "backoff_costs": backoff_costs[states],
                "finals": lm.finals[states],
                "known": lm.words[: offsets[1]],
            },
            {"start": int(numbers[self.start])},
        )
