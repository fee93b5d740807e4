"""Back-off models as tries, for operations on all n-grams at once: mixing and pruning.

Node 0 is the empty history. The nodes of the unigrams follow, then those of the bigrams, and so on; within an
order they are sorted by history, then word. The n-grams after history h are therefore the nodes first[h] ...
first[h + 1] - 1. The node of an n-gram also stands for the history that it forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyasr.base import log
from pyasr.lang.ngrams import trie_kernels as kernels
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, ngram_keys
from pyasr.lang.ngrams.arpa_reader import NO_PROBABILITY
from pyasr.lang.ngrams.ngram import BEGIN, END

_NOISE = 1e-6  # error of sums of probabilities from ARPA files, which have 6 decimals


class Nodes(NamedTuple):
    """Arrays of the compiled loops, one entry per node.

    parents   int32; the history of the n-gram, -1 for the root
    last      int32; its last word, -1 for the root
    first     int32 (num_nodes + 1); the first of the n-grams after it
    suffixes  int32; the longest other n-gram that ends with the same words: the back-off state of the history
    logprob   float64; log10 p(last word | history), NaN for a removed n-gram that is still a history
    backoff   float64; log10 of its back-off weight as a history
    """

    parents: np.ndarray
    last: np.ndarray
    first: np.ndarray
    suffixes: np.ndarray
    logprob: np.ndarray
    backoff: np.ndarray


class Shares(NamedTuple):
    """The probability mass of the histories of one order.

    histories    int64 (num); the history, counted from the first of its order
    probability  float64 (num); p(w | h), 0 for a removed n-gram
    estimate     float64 (num); log10 p(w | h'), where h' is the history after back-off
    left         float64 (num_histories); 1 - sum of p(w | h) over the n-grams w of a history
    room         float64 (num_histories); 1 - sum of p(w | h') over the same words
    """

    histories: np.ndarray
    probability: np.ndarray
    estimate: np.ndarray
    left: np.ndarray
    room: np.ndarray


@dataclass
class Trie:
    """A back-off model; the nodes of order n are bounds[n] ... bounds[n + 1] - 1."""

    words: list[str]
    bounds: list[int]
    nodes: Nodes

    @classmethod
    def of_levels(cls, words: list[str], levels: list[tuple[np.ndarray, np.ndarray]]) -> Trie:
        """A trie with all probabilities and weights 1.

        levels  parents and last words of the n-grams of each order, sorted
        """
        bounds = [0, *np.cumsum([1, *(len(parents) for parents, _ in levels)]).tolist()]
        parents, last = (np.concatenate([[-1], *column]).astype(np.int32) for column in zip(*levels))
        first = np.searchsorted(parents, np.arange(len(parents) + 1)).astype(np.int32)
        suffixes = kernels.suffixes_of(parents, last, first)
        logprob, backoff = np.zeros((2, len(parents)))
        return cls(words, bounds, Nodes(parents, last, first, suffixes, logprob, backoff))

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.bounds) - 2

    def level(self, n: int) -> slice:
        """The nodes of order `n`."""
        return slice(self.bounds[n], self.bounds[n + 1])

    def counts(self) -> list[int]:
        """Number of n-grams with a probability, by order from unigrams up."""
        return [int((~np.isnan(self.nodes.logprob[self.level(n)])).sum()) for n in range(1, self.order + 1)]

    def shares(self, n: int) -> Shares:
        """The `Shares` of the n-grams of order `n`, 2 or more. Estimates depend on the back-off weights of
        shorter histories."""
        rows, size = self.level(n), self.bounds[n] - self.bounds[n - 1]
        histories = self.nodes.parents[rows].astype(np.int64) - self.bounds[n - 1]
        estimate = kernels.lower_estimates(self.nodes, rows.start, rows.stop)
        listed = ~np.isnan(self.nodes.logprob[rows])
        probability = np.where(listed, 10.0 ** self.nodes.logprob[rows], 0.0)
        left = 1 - np.bincount(histories, probability, size)
        room = 1 - np.bincount(histories, np.where(listed, 10.0**estimate, 0.0), size)
        return Shares(histories, probability, estimate, left, room)

    def normalize(self, lowest: int = 2) -> None:
        """Set the back-off weights of histories of lowest - 1 words and more, so that the probabilities after
        each sum to one.

        A weight is (1 - sum of p(w | h)) / (1 - sum of p(w | h')) over the listed words w. If these leave no
        mass for others, they are scaled to leave one millionth; if there are no other words, they are scaled
        to sum to one.
        """
        for n in range(lowest, self.order + 1):
            shares = self.shares(n)
            given, alone = 1 - shares.left, shares.room < _NOISE
            factors = np.ones(len(given))
            scaled = (given > 0) & (alone | (shares.left < _NOISE))
            factors[scaled] = np.where(alone, 1.0, 1.0 - _NOISE)[scaled] / given[scaled]
            self.nodes.logprob[self.level(n)] += np.log10(factors)[shares.histories]
            weights = np.maximum(shares.left, _NOISE) / np.where(alone, 1.0, shares.room)
            self.nodes.backoff[self.level(n - 1)] = np.where(alone, 0.0, np.log10(weights))

    def backed_off(self, n: int) -> np.ndarray:
        """log10 of the back-off estimate of each n-gram of order `n`: the weight of its history times p(w |
        h'). float64."""
        rows = self.level(n)
        return self.nodes.backoff[self.nodes.parents[rows]] + kernels.lower_estimates(
            self.nodes, rows.start, rows.stop
        )

    def restore_histories(self) -> None:
        """Give removed n-grams that are prefixes of longer ones their back-off estimates, which changes no
        probability."""
        for n in range(self.order - 1, 1, -1):
            rows, longer = self.level(n), self.level(n + 1)
            needed = np.zeros(rows.stop - rows.start, bool)
            needed[self.nodes.parents[longer][~np.isnan(self.nodes.logprob[longer])] - rows.start] = True
            needed &= np.isnan(self.nodes.logprob[rows])
            self.nodes.logprob[rows] = np.where(needed, self.backed_off(n), self.nodes.logprob[rows])

    def arpa(self) -> Arpa:
        """Tables of the n-grams with a probability, sorted by words; without empty orders."""
        tables, ids = [], np.zeros((1, 0), np.int32)
        for n in range(1, self.order + 1):
            rows = self.level(n)
            ids = np.concatenate(
                [ids[self.nodes.parents[rows] - self.bounds[n - 1]], self.nodes.last[rows, None]], 1
            )
            listed = ~np.isnan(self.nodes.logprob[rows])
            columns = (column[rows][listed] for column in (self.nodes.logprob, self.nodes.backoff))
            tables.append(
                NgramTable(ids[listed], *(np.maximum(column, NO_PROBABILITY) for column in columns))
            )
        while not len(tables[-1]):
            tables.pop()
        tables[-1].backoff[:] = 0.0
        return Arpa(list(self.words), tables)


def trie_of(arpa: Arpa, name: Path) -> Trie:
    """The model of the file `name` as a trie. Unreachable n-grams are skipped, with a warning: their history
    is not listed, or they contain <s> after the first word or </s> before the last."""
    begin, end, num_words = arpa.index[BEGIN], arpa.index[END], len(arpa.words)
    keys, rows, levels, bound = list[np.ndarray](), [], [], 0
    for n, table in enumerate(arpa.tables, 1):
        key = ngram_keys(keys, table.ids, num_words, n)
        key[(table.ids[:, 1:] == begin).any(1) | (table.ids[:, :-1] == end).any(1)] = -1
        order = np.argsort(key, kind="stable")[np.count_nonzero(key < 0) :]
        keys.append(key[order])
        rows.append(order)
        levels.append((bound + keys[-1] // num_words, keys[-1] % num_words))
        bound += len(keys[-2]) if n > 1 else 1
    trie = Trie.of_levels(list(arpa.words), levels)
    for n, (table, order) in enumerate(zip(arpa.tables, rows), 1):
        trie.nodes.logprob[trie.level(n)] = table.logprob[order]
        trie.nodes.backoff[trie.level(n)] = table.backoff[order] if n < arpa.order else 0.0
    if dropped := sum(map(len, arpa.tables)) - sum(map(len, rows)):
        log.warning(
            f"{name}: {dropped} n-grams skipped, because their history is not listed or <s> or </s> is "
            "inside them"
        )
    return trie
