r"""The costs of a model that remembers all words in lattices: pruned expansion, all histories as far from the start in one batch.

References: X. Liu et al., "Efficient lattice rescoring using recurrent neural network language models", ICASSP 2014 (histories that agree
in their last words are one); H. Xu et al., "A pruned RNNLM lattice-rescoring algorithm for automatic speech recognition", ICASSP 2018
(costs from the start by the new model, from there to the end by the old one).

    rescored = rescore_together([lattice, ...], ngram, model, word_ids, options)      # lattices without the cost of any language model

A state of the result is a pair of a state s of the lattice and a history: the last n - 1 words before s, and the n-gram model's state. The
model goes on from its state after the cheapest known path to the pair, alpha being that path's cost. With beta(s) the least cost from s to
the end by the n-gram model, a pair is kept where

    alpha(pair) + beta(s)  <=  min over the pairs as many arcs from the start of (alpha + beta) + beam                                (1)

The cheapest pair of each distance stays, so a path to the end does; at last those paths go that are not within the beam of the best one. A
word costs -ln ((1 - v) p_ngram + v p_model), each with its own history (`pyasr.lang.ngrams.mixture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import backward, prune, scaled_costs
from pyasr.decode.rescoring.lm_rescore import add_costs, of_pairs
from pyasr.decode.rescoring.side_by_side import Composed, SideBySide
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.ngrams.mixture import mix
from pyasr.nn.networks.lstm_lm import BOUNDARY

_MOST_SCORES = 1 << 25  # elements of a matrix of scores: pairs x words


class WordModel(Protocol):
    """What is asked of a model, such as `pyasr.nn.networks.lstm_lm.LstmLm`; its `num_words` are 1, 2, ... and BOUNDARY, a
    sentence's end."""

    num_words: int

    def start(self) -> Tensor:
        """The state at the beginning of a sentence, (1, state_dim)."""

    def step(self, states: Tensor, words: Tensor) -> Tensor:
        """The states (N, state_dim) after one more word each, int64 (N)."""

    def log_probabilities(self, states: Tensor) -> Tensor:
        """ln p of every word after each state: (N, num_words)."""


@dataclass(frozen=True)
class Expansion:
    """How far lattices are expanded.

    ngram_order     n; 1: one history for each state of the lattice
    weight          v
    beam            in (1)
    acoustic_scale  of the costs in (1)
    """

    ngram_order: int
    weight: float
    beam: float
    acoustic_scale: float


def rescore_together(lattices: Sequence[CompactLattice], ngram: BackoffLm, model: WordModel, word_ids: np.ndarray,
                     options: Expansion) -> list[CompactLattice]:  # fmt: skip
    """The lattices with the mixture's costs; those without a path to the end stay as they are.

    word_ids  the model's word for each of the lattices', 0 for none: int64 (most word id + 1)
    """
    found = list(lattices)
    places = [place for place, lattice in enumerate(lattices) if has_path(lattice)]
    composed = [Composed.make(lattices[place], ngram, options.acoustic_scale) for place in places]
    if composed:
        pairs = _Pairs(SideBySide.of(composed), model, word_ids, options)
        for place, part, own in zip(places, composed, pairs.make()):
            expanded = add_costs(*of_pairs(part.lattice, *own))
            found[place] = prune(expanded, options.beam, options.acoustic_scale)
    return found


def has_path(lattice: CompactLattice) -> bool:
    """Whether any path leads from the start to the end."""
    costs, finals = scaled_costs(lattice, 1.0)
    return not lattice.empty and bool(np.isfinite(backward(lattice.sources, lattice.targets, costs, finals)[0]))


class _Arrivals(NamedTuple):
    """Ways into pairs: state, history (num, n - 1), alpha along this way; the pair (-1: none, the start) and the arc (-1) they come by, the
    mixture's cost of its word."""

    states: np.ndarray
    histories: np.ndarray
    alphas: np.ndarray
    sources: np.ndarray
    arcs: np.ndarray
    costs: np.ndarray

    def select(self, chosen: np.ndarray) -> _Arrivals:
        return _Arrivals(*(column[chosen] for column in self))


class _Pairs:
    """The pairs of several lattices."""

    def __init__(self, lattices: SideBySide, model: WordModel, word_ids: np.ndarray, options: Expansion):
        self.lattices, self.words, self.model, self.options = lattices, word_ids[lattices.words], model, options
        self.states, self.ends, self.num_pairs = [], [], 0  # of pairs: states of lattices and costs of ends, in their order
        self.ways, self.reached = [], []  # all ways to pairs, and the pairs they lead to
        self.memory = _Rows(model.start())  # the model's state after pair p is row p + 1

    def make(self) -> list[tuple[np.ndarray, ...]]:
        """Find all pairs, from the start on; those of each lattice as `BackoffLm.compose` gives them, with the mixture's costs."""
        starts, none = self.lattices.starts, np.full(self.lattices.num, -1)
        histories = np.zeros((len(starts), self.options.ngram_order - 1), np.int64)
        coming: list[list[_Arrivals]] = [[] for _ in range(self.lattices.depths.max() + 1)]
        coming[0].append(_Arrivals(starts, histories, np.zeros(len(starts)), none, none, np.zeros(len(starts))))
        for here in coming:
            if here:
                self._leave(self._enter(_joined(here)), coming)
        return self._by_lattice()

    def _enter(self, ways: _Arrivals) -> _Arrivals:
        """Make the pairs that these ways lead to, which are as far from the start; the cheapest way to each."""
        ways = ways.select(np.lexsort((ways.alphas, *ways.histories.T, ways.states)))
        fresh = np.append(True, (np.diff(ways.states) != 0) | (np.diff(ways.histories, axis=0) != 0).any(1))
        best = ways.select(fresh)
        kept = self._within_beam(best)
        numbers = np.where(kept, self.num_pairs + np.cumsum(kept) - 1, -1)[np.cumsum(fresh) - 1]
        self.ways.append(ways.select(numbers >= 0))
        self.reached.append(numbers[numbers >= 0])
        best = best.select(kept)
        self.states.append(best.states)
        self.num_pairs += len(best.states)
        return best

    def _within_beam(self, best: _Arrivals) -> np.ndarray:
        """(1)."""
        totals, owners = best.alphas + self.lattices.beta[best.states], self.lattices.owners[best.states]
        least = np.full(self.lattices.num, np.inf)
        np.minimum.at(least, owners, totals)
        return np.isfinite(totals) & (totals <= least[owners] + self.options.beam)

    def _leave(self, pairs: _Arrivals, coming: list[list[_Arrivals]]) -> None:
        """Follow the arcs out of the pairs that were made last."""
        lattices, weight = self.lattices, self.options.weight
        rows, arcs = lattices.arcs_from(pairs.states)
        words = self.words[arcs]
        scores, end_scores = self._scores(self._remember(pairs), rows, words)
        ends = -mix(-lattices.ngram_ends[pairs.states], end_scores, weight)
        self.ends.append(np.where(lattices.is_final[pairs.states], ends, 0.0))
        costs = np.where(words != 0, -mix(-lattices.ngram[arcs], scores, weight), 0.0)
        ways = _Arrivals(lattices.targets[arcs], _longer(pairs.histories[rows], words), pairs.alphas[rows] + lattices.costs[arcs] + costs,
                         self.num_pairs - len(pairs.states) + rows, arcs, costs)  # fmt: skip
        depth = lattices.depths[ways.states]
        for further in np.unique(depth):
            coming[further].append(ways.select(depth == further))

    def _remember(self, pairs: _Arrivals) -> Tensor:
        """The model's states after the pairs' cheapest ways."""
        memory, came = self.memory[pairs.sources + 1], pairs.arcs >= 0
        words = np.zeros(len(came), np.int64)
        words[came] = self.words[pairs.arcs[came]]
        spoken = torch.from_numpy(np.flatnonzero(words))
        if len(spoken):
            memory[spoken] = self.model.step(memory[spoken], torch.from_numpy(words)[spoken])
        self.memory.append(memory)
        return memory

    def _scores(self, memory: Tensor, rows: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ln p of `words` after the states `rows`, which ascend; ln p of the end after every state) by the model, float64."""
        scores, ends, size = np.empty(len(rows)), np.empty(len(memory)), max(_MOST_SCORES // self.model.num_words, 1)
        for begin in range(0, len(memory), size):
            part = self.model.log_probabilities(memory[begin : begin + size])
            low, high = np.searchsorted(rows, (begin, begin + size))
            scores[low:high] = part[rows[low:high] - begin, words[low:high]].double().cpu()
            ends[begin : begin + size] = part[:, BOUNDARY].double().cpu()
        return scores, ends

    def _by_lattice(self) -> list[tuple[np.ndarray, ...]]:
        """What `make` returns."""
        states, ends, reached = (np.concatenate(parts) for parts in (self.states, self.ends, self.reached))
        ways, owners, found = _joined(self.ways), self.lattices.owners, []
        for number in range(self.lattices.num):
            mine = np.flatnonzero(owners[states] == number)
            chosen = (owners[ways.states] == number) & (ways.arcs >= 0)
            sources, targets = (np.searchsorted(mine, pairs[chosen]) for pairs in (ways.sources, reached))
            found.append((states[mine] - self.lattices.starts[number], ends[mine], sources, targets,
                          ways.arcs[chosen] - self.lattices.first_arcs[number], ways.costs[chosen]))  # fmt: skip
        return found


def _joined(parts: list[_Arrivals]) -> _Arrivals:
    return _Arrivals(*map(np.concatenate, zip(*parts)))


def _longer(histories: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Histories after one more word each, 0 being none."""
    longer = np.concatenate([histories, words[:, None]], axis=1)
    return np.where(words[:, None] != 0, longer[:, 1:], longer[:, :-1])


class _Rows:
    """A matrix that rows are appended to."""

    def __init__(self, rows: Tensor):
        self._matrix, self._num = rows, len(rows)

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        return self._matrix[torch.from_numpy(rows)]

    def append(self, rows: Tensor) -> None:
        """Room is doubled where there is none left."""
        end = self._num + len(rows)
        if end > len(self._matrix):
            more = self._matrix.new_empty(max(len(self._matrix), end - len(self._matrix)), self._matrix.shape[1])
            self._matrix = torch.cat([self._matrix, more])
        self._matrix[self._num : end] = rows
        self._num = end
