r"""Rescoring of lattices with a recurrent language model: pruned expansion; histories at equal distance from
the start form one batch.

References: X. Liu et al., "Efficient lattice rescoring using recurrent neural network language models",
ICASSP 2014 (histories that agree in their last words are merged); H. Xu et al., "A pruned RNNLM
lattice-rescoring algorithm for automatic speech recognition", ICASSP 2018 (costs from the start by the new
model, from there to the end by the old one).

    # the lattices are without language model costs
    rescored = rescore_together([lattice, ...], ngram, model, word_ids, options)

A state of the result is a pair of a lattice state s and a history: the last n - 1 words before s, and the
n-gram model's state. The recurrent model continues from its state after the cheapest known path to the pair;
alpha is the cost of this path. With beta(s), the lowest cost from s to the end by the n-gram model, a pair is
kept if

    alpha(pair) + beta(s)  <=  min (alpha + beta) + beam                         (1)

where the minimum is over the pairs at the same distance from the start. The distance of a pair is the number
of arcs from the start. The cheapest pair at each distance is kept, so a path to the end remains. Finally,
paths outside the beam of the best path are pruned. A word costs -ln ((1 - v) p_ngram + v p_model), each model
with its own history (`pyasr.lang.ngrams.mixture`).
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

_MAX_SCORES = 1 << 25  # elements of a matrix of scores: pairs x words


class WordModel(Protocol):
    """Interface of a model, such as `pyasr.nn.networks.lstm_lm.LstmLm`; its `num_words` words are 1, 2, ...
    and BOUNDARY, the sentence end."""

    @property
    def num_words(self) -> int: ...

    def start(self) -> Tensor:
        """The state at the beginning of a sentence, (1, state_dim)."""

    def step(self, states: Tensor, words: Tensor) -> Tensor:
        """The states (N, state_dim) after one more word for each, int64 (N)."""

    def log_probabilities(self, states: Tensor) -> Tensor:
        """ln p of every word after each state: (N, num_words)."""


@dataclass(frozen=True)
class Expansion:
    """Options of the expansion.

    ngram_order     n; 1: one history for each state of the lattice
    weight          v
    beam            beam in (1)
    acoustic_scale  acoustic scale of the costs in (1)
    """

    ngram_order: int
    weight: float
    beam: float
    acoustic_scale: float


def rescore_together(
    lattices: Sequence[CompactLattice],
    ngram: BackoffLm,
    model: WordModel,
    word_ids: np.ndarray,
    options: Expansion,
) -> list[CompactLattice]:
    """The lattices with the costs of the mixture added; lattices without a path to the end are unchanged.

    word_ids  the model's id of each word id of the lattices, 0 for no word: int64 (maximum word id + 1)
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
    return not lattice.empty and bool(
        np.isfinite(backward(lattice.sources, lattice.targets, costs, finals)[0])
    )


class _Arrivals(NamedTuple):
    """Arcs into pairs: lattice state, history (num, n - 1), alpha of the path by this arc; source pair and
    lattice arc (-1 at the start), the mixture's cost of its word."""

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
        self.lattices = lattices
        self.words = word_ids[lattices.words]
        self.model = model
        self.options = options
        # of the pairs, in order: lattice states and costs of the sentence end
        self.states: list[np.ndarray] = []
        self.ends: list[np.ndarray] = []
        self.num_pairs = 0
        # all arcs into pairs, and the pairs that they lead to
        self.ways: list[_Arrivals] = []
        self.reached: list[np.ndarray] = []
        self.memory = _Rows(model.start())  # row p + 1: the model's state after pair p

    def make(self) -> list[tuple[np.ndarray, ...]]:
        """Find all pairs from the start on. Returns the pairs of each lattice in the form of
        `BackoffLm.compose`, with mixture costs."""
        starts, none = self.lattices.starts, np.full(self.lattices.num, -1)
        histories = np.zeros((len(starts), self.options.ngram_order - 1), np.int64)
        coming: list[list[_Arrivals]] = [[] for _ in range(self.lattices.depths.max() + 1)]
        coming[0].append(
            _Arrivals(starts, histories, np.zeros(len(starts)), none, none, np.zeros(len(starts)))
        )
        for here in coming:
            if here:
                self._leave(self._enter(_joined(here)), coming)
        return self._by_lattice()

    def _enter(self, ways: _Arrivals) -> _Arrivals:
        """Create the pairs that these arcs lead to, all at the same distance from the start. Returns the
        cheapest arc into each pair."""
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
        """Whether each pair satisfies (1)."""
        totals, owners = best.alphas + self.lattices.beta[best.states], self.lattices.owners[best.states]
        least = np.full(self.lattices.num, np.inf)
        np.minimum.at(least, owners, totals)
        return np.isfinite(totals) & (totals <= least[owners] + self.options.beam)

    def _leave(self, pairs: _Arrivals, coming: list[list[_Arrivals]]) -> None:
        """Follow the arcs out of the pairs that were created last."""
        lattices, weight = self.lattices, self.options.weight
        rows, arcs = lattices.arcs_from(pairs.states)
        words = self.words[arcs]
        scores, end_scores = self._scores(self._remember(pairs), rows, words)
        ends = -mix(-lattices.ngram_ends[pairs.states], end_scores, weight)
        self.ends.append(np.where(lattices.is_final[pairs.states], ends, 0.0))
        costs = np.where(words != 0, -mix(-lattices.ngram[arcs], scores, weight), 0.0)
        ways = _Arrivals(
            lattices.targets[arcs],
            _longer(pairs.histories[rows], words),
            pairs.alphas[rows] + lattices.costs[arcs] + costs,
            self.num_pairs - len(pairs.states) + rows,
            arcs,
            costs,
        )
        depth = lattices.depths[ways.states]
        for further in np.unique(depth):
            coming[further].append(ways.select(depth == further))

    def _remember(self, pairs: _Arrivals) -> Tensor:
        """The model's states after the cheapest paths to the pairs."""
        memory, came = self.memory[pairs.sources + 1], pairs.arcs >= 0
        words = np.zeros(len(came), np.int64)
        words[came] = self.words[pairs.arcs[came]]
        spoken = torch.from_numpy(np.flatnonzero(words))
        if len(spoken):
            memory[spoken] = self.model.step(memory[spoken], torch.from_numpy(words)[spoken])
        self.memory.append(memory)
        return memory

    def _scores(self, memory: Tensor, rows: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ln p of `words` after the states `rows`, ascending; ln p of the sentence end after each state) by
        the model, float64."""
        scores = np.empty(len(rows))
        ends = np.empty(len(memory))
        size = max(_MAX_SCORES // self.model.num_words, 1)
        for begin in range(0, len(memory), size):
            part = self.model.log_probabilities(memory[begin : begin + size])
            low, high = np.searchsorted(rows, (begin, begin + size))
            scores[low:high] = part[rows[low:high] - begin, words[low:high]].double().cpu()
            ends[begin : begin + size] = part[:, BOUNDARY].double().cpu()
        return scores, ends

    def _by_lattice(self) -> list[tuple[np.ndarray, ...]]:
        """Split the pairs by lattice, as `make` returns them."""
        states, ends, reached = (np.concatenate(parts) for parts in (self.states, self.ends, self.reached))
        ways, owners = _joined(self.ways), self.lattices.owners
        found: list[tuple[np.ndarray, ...]] = []
        for number in range(self.lattices.num):
            mine = np.flatnonzero(owners[states] == number)
            chosen = (owners[ways.states] == number) & (ways.arcs >= 0)
            sources, targets = (np.searchsorted(mine, pairs[chosen]) for pairs in (ways.sources, reached))
            found.append(
                (
                    states[mine] - self.lattices.starts[number],
                    ends[mine],
                    sources,
                    targets,
                    ways.arcs[chosen] - self.lattices.first_arcs[number],
                    ways.costs[chosen],
                )
            )
        return found


def _joined(parts: list[_Arrivals]) -> _Arrivals:
    return _Arrivals(*map(np.concatenate, zip(*parts)))


def _longer(histories: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Histories after one more word for each; word 0: no word."""
    longer = np.concatenate([histories, words[:, None]], axis=1)
    return np.where(words[:, None] != 0, longer[:, 1:], longer[:, :-1])


class _Rows:
    """A matrix to which rows can be appended."""

    def __init__(self, rows: Tensor):
        self._matrix, self._num = rows, len(rows)

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        return self._matrix[torch.from_numpy(rows)]

    def append(self, rows: Tensor) -> None:
        """Append rows; doubles the allocated size if necessary."""
        end = self._num + len(rows)
        if end > len(self._matrix):
            more = self._matrix.new_empty(
                max(len(self._matrix), end - len(self._matrix)), self._matrix.shape[1]
            )
            self._matrix = torch.cat([self._matrix, more])
        self._matrix[self._num : end] = rows
        self._num = end
