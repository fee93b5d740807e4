"""Minimum Bayes risk decoding: the words of minimum expected word error, with a confidence and times for each
word.

H. Xu, D. Povey, L. Mangu, J. Zhu, "Minimum Bayes Risk decoding and system combination based on a recursion
for edit distance", Computer Speech and Language 25 (2011). The notation is that of the paper:

    R = r_1 ... r_Q   the hypothesis, with an epsilon before, between and after its words, where words can be
                      inserted
    p_a, w_a          posterior weight and word of arc a; s_a, e_a its states;  alpha(n)  weight of all paths
                      to state n
    l(a, b)           0 if a = b, else 1; epsilon counts as a word

    alpha'(a, q) = min( alpha'(s_a, q-1) + l(w_a, r_q),  alpha'(s_a, q) + l(w_a, eps) + delta,
                        alpha'(a, q-1) + l(eps, r_q) )                                     (1)
    alpha'(n, q) = sum over arcs a into n of  alpha(s_a) p_a / alpha(n)  alpha'(a, q)      (2)

alpha'(last state, Q) is the *risk*: an upper bound of the expected edit distance between R and the paths of
the lattice. It is a bound because (1) takes the minimum after averaging over the paths to s_a; it is exact if
one path leads to each state. The penalty delta = 1e-5 prefers the alignment of a word with an epsilon of R to
an insertion. A backward pass over the choices of (1) gives gamma(q, w), the probability that w is aligned
with position q; for each q, these sum to one over w. Each r_q is then replaced by the w of maximum gamma(q,
w), and the procedure repeats until nothing changes; the risk cannot increase. gamma(q, r_q) is the confidence
of a word. Its times are averages over the arcs aligned with q.

The size of the tables of (1) and (2) grows with the square of the utterance's length. Words that are more
than `WINDOW_FRAMES` apart are therefore not aligned with each other. The risk remains an upper bound, and
shorter utterances are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from pyasr.base.cli.options import option
from pyasr.decode.lattices import mbr_kernels as kernels
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.word_graph import WordGraph

_Weight = TypeVar("_Weight", bound=float)

WINDOW_FRAMES = 1500
_MAX_ITERATIONS = 100
_TIE = 1e-9
_NOTHING = 1e-6


@dataclass(frozen=True)
class MbrOptions:
    """Options of the choice of words from a lattice, and of their confidences."""

    heading = "scoring"

    decode_mbr: bool = option(
        False, "output the words of minimum expected error; false: the words of the best path"
    )
    posterior_scale: float = option(
        0.5, "scale of costs in posteriors; a smaller scale lowers confidences", minimum=1e-3
    )


@dataclass(frozen=True)
class Bin:
    """The possible words at one position, by decreasing probability (word 0: none), and the position's mean
    begin and end in frames."""

    words: list[tuple[int, float]]
    begin: float
    end: float


@dataclass(frozen=True)
class MbrResult:
    """Words of minimum expected error.

    words         ids
    confidences   gamma(q, r_q), the posterior probability of each word at its position
    times         (begin, end) of each word in frames, in order and without overlap
    risk          expected number of word errors (an upper bound)
    """

    words: list[int]
    confidences: list[float]
    times: list[tuple[float, float]]
    risk: float
    statistics: _Statistics | None = field(default=None, repr=False, compare=False)

    @cached_property
    def bins(self) -> list[Bin]:
        """All positions where a word is possible, in order: a confusion network."""
        return self.statistics.bins() if self.statistics else []


def mbr_decode(
    graph: WordGraph,
    words: list[int] | None = None,
    *,
    decode: bool = True,
    posterior_scale: float = 1.0,
    window_frames: int = WINDOW_FRAMES,
) -> MbrResult:
    """Minimum Bayes risk decoding of a lattice, as Kaldi's lattice-mbr-decode.

    words            initial hypothesis; None: the words of the best path
    decode           False: keep `words` and only compute their confidences and times
    posterior_scale  a path's weight is exp(-posterior_scale * cost)
    """
    if graph.empty:
        return MbrResult([], [], [], 0.0)
    lattice = _Lattice(graph, posterior_scale, window_frames)
    hypothesis = _with_epsilons(
        *(_best_words(graph) if words is None else (words, np.linspace(0, graph.num_frames, len(words))))
    )
    for _ in range(_MAX_ITERATIONS):
        statistics = lattice.statistics(*hypothesis)
        best = statistics.best_words()
        if not decode or (best == hypothesis[0]).all():
            break
        spoken = best != 0
        hypothesis = _with_epsilons(best[spoken], statistics.middles()[spoken])
    return statistics.result()


def mbr_sweep(
    lattice: CompactLattice,
    lm_weights: Sequence[_Weight],
    penalties: Sequence[float],
    posterior_scale: float = 1.0,
) -> dict[tuple[_Weight, float], list[int]]:
    """The words of minimum expected error for each LM weight and word insertion penalty, in the form of
    `pyasr.decode.lattices.lattice.sweep`."""
    points = [(lm_weight, penalty) for lm_weight in lm_weights for penalty in penalties]
    return {
        point: mbr_decode(
            WordGraph.of(lattice, 1.0 / point[0], point[1]), posterior_scale=posterior_scale
        ).words
        for point in points
    }


def _best_words(graph: WordGraph) -> tuple[np.ndarray, np.ndarray]:
    """(words, middle frame of each) of the path of lowest cost."""
    arcs = graph.best_path()
    arcs = arcs[graph.words[arcs] != 0]
    return graph.words[arcs], (graph.times[graph.sources[arcs]] + graph.times[graph.targets[arcs]]) / 2


def _with_epsilons(words, times) -> tuple[np.ndarray, np.ndarray]:
    """(R as int64 (Q + 1) with entry 0 unused, middle frame of each position)."""
    hypothesis = np.zeros(2 * len(words) + 2, np.int64)
    hypothesis[2::2] = words
    middles = np.zeros(2 * len(words) + 2)
    middles[2::2] = times
    middles[3::2] = times
    return hypothesis, np.maximum.accumulate(middles)


class _Lattice:
    """Arcs sorted by target, a single last state, and each arc's share in the posterior of its target."""

    def __init__(self, graph: WordGraph, posterior_scale: float, window_frames: int):
        self.window_frames = window_frames
        ends = np.flatnonzero(np.isfinite(graph.finals))
        last, zeros = graph.num_states, np.zeros(len(ends), np.int64)
        sources, targets = np.r_[graph.sources, ends], np.r_[graph.targets, zeros + last]
        order = np.argsort(targets, kind="stable")
        self.sources = sources[order].astype(np.int64)
        self.words = np.r_[graph.words, zeros][order].astype(np.int64)
        self.in_offsets = np.searchsorted(targets[order], np.arange(last + 2))
        self.times = np.r_[graph.times, graph.num_frames].astype(np.float64)
        self.shares = kernels.forward_shares(
            self.in_offsets, self.sources, posterior_scale * np.r_[graph.costs, graph.finals[ends]][order]
        )

    def statistics(self, hypothesis: np.ndarray, middles: np.ndarray) -> _Statistics:
        """Risk and gamma of a hypothesis. middles: frame of each position, ascending."""
        lows = np.searchsorted(middles[1:], self.times - self.window_frames)
        highs = np.searchsorted(middles[1:], self.times + self.window_frames, "right")
        highs[-1] = len(hypothesis) - 1
        rows = np.concatenate(([0], np.cumsum(highs - lows + 1)))
        table = (
            kernels.Arcs(self.in_offsets, self.sources, self.words, self.shares),
            hypothesis,
            kernels.Band(lows, highs, rows),
        )
        distances = kernels.edit_distances(*table)
        return _Statistics(
            hypothesis, float(distances[-1]), *kernels.bin_statistics(*table, distances, self.times)
        )


@dataclass(frozen=True)
class _Statistics:
    """gamma(q, w) of all pairs that occur, and the sums of gamma * begin and gamma * end."""

    hypothesis: np.ndarray
    risk: float
    positions: np.ndarray
    words: np.ndarray
    gammas: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def best_words(self) -> np.ndarray:
        """The w of maximum gamma(q, w) for each q, entry 0 unused; in ties, the current word is kept."""
        gains = self.gammas + _TIE * (self.words == self.hypothesis[self.positions])
        order = np.lexsort((self.words, -gains, self.positions))
        best = np.zeros_like(self.hypothesis)
        firsts = order[np.searchsorted(self.positions[order], np.arange(1, len(best)))]
        best[1:] = self.words[firsts]
        return best

    def middles(self) -> np.ndarray:
        """Mean frame of each position, entry 0 unused."""
        return np.bincount(self.positions, (self.begins + self.ends) / 2, len(self.hypothesis))

    def result(self) -> MbrResult:
        """The hypothesis with its confidences and times."""
        entries = {(q, w): i for i, (q, w) in enumerate(zip(self.positions.tolist(), self.words.tolist()))}
        places = np.flatnonzero(self.hypothesis).tolist()
        mine = [entries.get((q, int(self.hypothesis[q])), -1) for q in places]
        middles = self.middles()
        times = [
            (self.begins[i] / self.gammas[i], self.ends[i] / self.gammas[i])
            if i >= 0
            else (middles[q], middles[q])
            for i, q in zip(mine, places)
        ]
        confidences = [min(float(self.gammas[i]), 1.0) if i >= 0 else 0.0 for i in mine]
        return MbrResult(
            self.hypothesis[places].tolist(), confidences, _without_overlap(times), self.risk, self
        )

    def bins(self) -> list[Bin]:
        """The positions where a word is possible."""
        order = np.lexsort((self.words, -self.gammas, self.positions))
        edges = np.searchsorted(self.positions[order], np.arange(1, len(self.hypothesis) + 1))
        begins, ends = (
            np.bincount(self.positions, sums, len(self.hypothesis)) for sums in (self.begins, self.ends)
        )
        found = []
        for q, (low, high) in enumerate(zip(edges, edges[1:]), 1):
            words = [(int(self.words[i]), float(self.gammas[i])) for i in order[low:high]]
            if self.hypothesis[q] or sum(gamma for word, gamma in words if word) > _NOTHING:
                found.append(Bin(words, float(begins[q]), float(ends[q])))
        return found


def _without_overlap(times: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times without overlap: if a word ends after the next one begins, both times are set to the mean."""
    edges = np.array(times, np.float64).reshape(-1)
    crossed = np.flatnonzero(edges[1:-1:2] > edges[2::2]) * 2 + 1
    edges[crossed] = edges[crossed + 1] = (edges[crossed] + edges[crossed + 1]) / 2
    edges = np.maximum.accumulate(edges)
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))
