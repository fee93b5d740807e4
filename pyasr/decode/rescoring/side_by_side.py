"""Lattices composed with a language model, several as one: their states and arcs are numbered one lattice after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyasr.decode.lattices.compact_lattice import CompactLattice, depths
from pyasr.decode.lattices.lattice import backward, scaled_costs
from pyasr.decode.rescoring.lm_rescore import compose
from pyasr.lang.grammars.backoff_lm import BackoffLm


class Composed(NamedTuple):
    """A lattice whose states know an n-gram model's history.

    ngram, ngram_ends  the model's costs of arcs, and of the sentence's end at states: float64
    costs              other costs of arcs, acoustic ones scaled: float64
    beta               least cost, with the model's, from each state to the end: float64
    """

    lattice: CompactLattice
    ngram: np.ndarray
    ngram_ends: np.ndarray
    costs: np.ndarray
    beta: np.ndarray

    @classmethod
    def make(cls, lattice: CompactLattice, ngram: BackoffLm, acoustic_scale: float) -> Composed:
        """Of a lattice without the cost of any language model, which is not empty."""
        composed, ngram_costs, ngram_ends = compose(lattice, ngram)
        costs, finals = scaled_costs(composed, acoustic_scale)
        beta = backward(composed.sources, composed.targets, costs + ngram_costs, finals + ngram_ends)
        return cls(composed, ngram_costs, ngram_ends, costs, beta)


@dataclass(frozen=True)
class SideBySide:
    """Arrays over the states or the arcs of all lattices, as `Composed` and `CompactLattice` have them.

    starts, first_arcs  of each lattice
    owners              the lattice that each state belongs to
    arc_offsets         arcs of state s are arc_offsets[s]:arc_offsets[s + 1]
    depths              arcs on the longest path from the start to each state
    """

    starts: np.ndarray
    first_arcs: np.ndarray
    owners: np.ndarray
    arc_offsets: np.ndarray
    targets: np.ndarray
    words: np.ndarray
    is_final: np.ndarray
    depths: np.ndarray
    ngram: np.ndarray
    ngram_ends: np.ndarray
    costs: np.ndarray
    beta: np.ndarray

    @classmethod
    def of(cls, composed: list[Composed]) -> SideBySide:
        """At least one."""
        lattices = [part.lattice for part in composed]
        states, arcs = _begins([one.num_states for one in lattices]), _begins([one.num_arcs for one in lattices])
        offsets = [one.arc_offsets[:-1] + first for one, first in zip(lattices, arcs)]
        return cls(
            states[:-1], arcs[:-1], np.repeat(np.arange(len(lattices)), np.diff(states)), np.concatenate([*offsets, arcs[-1:]]),
            np.concatenate([one.targets + first for one, first in zip(lattices, states)]), np.concatenate([one.words for one in lattices]),
            np.isfinite(np.concatenate([one.final_graph for one in lattices])), np.concatenate([depths(one) for one in lattices]),
            *(np.concatenate(parts) for parts in list(zip(*composed))[1:]))  # fmt: skip

    @property
    def num(self) -> int:
        """Of lattices."""
        return len(self.starts)

    def arcs_from(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place in `states`, arc) of all arcs out of these states, in the order of the states: int64 (num_arcs)."""
        num = np.diff(self.arc_offsets)[states]
        rows = np.repeat(np.arange(len(num)), num)
        return rows, np.arange(len(rows)) + np.repeat(self.arc_offsets[states] - _begins(num)[:-1], num)


def _begins(sizes) -> np.ndarray:
    """Where each of several things begins that stand one after the other, and where the last one ends: int64 (num + 1)."""
    return np.append(0, np.cumsum(sizes, dtype=np.int64))
