"""Several lattices, composed with a language model, as one: states and arcs are numbered consecutively over
all lattices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyasr.decode.lattices.compact_lattice import CompactLattice, depths
from pyasr.decode.lattices.lattice import backward, scaled_costs
from pyasr.decode.rescoring.lm_rescore import compose
from pyasr.lang.grammars.backoff_lm import BackoffLm


class Composed(NamedTuple):
    """A lattice composed with an n-gram model, so that each state has one history.

    ngram, ngram_ends  the model's costs of arcs, and of the sentence end at states: float64
    costs              other costs of arcs, with scaled acoustic costs: float64
    beta               lowest cost, including the model's, from each state to the end: float64
    """

    lattice: CompactLattice
    ngram: np.ndarray
    ngram_ends: np.ndarray
    costs: np.ndarray
    beta: np.ndarray

    @classmethod
    def make(cls, lattice: CompactLattice, ngram: BackoffLm, acoustic_scale: float) -> Composed:
        """Compose a non-empty lattice without language model costs."""
        composed, ngram_costs, ngram_ends = compose(lattice, ngram)
        costs, finals = scaled_costs(composed, acoustic_scale)
        beta = backward(composed.sources, composed.targets, costs + ngram_costs, finals + ngram_ends)
        return cls(composed, ngram_costs, ngram_ends, costs, beta)


@dataclass(frozen=True)
class SideBySide:
    """Arrays over the states or arcs of all lattices, as in `Composed` and `CompactLattice`.

    starts, first_arcs  first state and first arc of each lattice
    owners              the lattice of each state
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
        """Join at least one lattice."""
        lattices = [part.lattice for part in composed]
        states = _begins([one.num_states for one in lattices])
        arcs = _begins([one.num_arcs for one in lattices])
        offsets = [one.arc_offsets[:-1] + first for one, first in zip(lattices, arcs)]
        return cls(
            states[:-1],
            arcs[:-1],
            np.repeat(np.arange(len(lattices)), np.diff(states)),
            np.concatenate([*offsets, arcs[-1:]]),
            np.concatenate([one.targets + first for one, first in zip(lattices, states)]),
            np.concatenate([one.words for one in lattices]),
            np.isfinite(np.concatenate([one.final_graph for one in lattices])),
            np.concatenate([depths(one) for one in lattices]),
            *(np.concatenate(parts) for parts in list(zip(*composed))[1:]),
        )

    @property
    def num(self) -> int:
        """The number of lattices."""
        return len(self.starts)

    def arcs_from(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index in `states`, arc) of all arcs out of these states, in their order: int64 (num_arcs)."""
        num = np.diff(self.arc_offsets)[states]
        rows = np.repeat(np.arange(len(num)), num)
        return rows, np.arange(len(rows)) + np.repeat(self.arc_offsets[states] - _begins(num)[:-1], num)


def _begins(sizes) -> np.ndarray:
    """The offsets of consecutive parts with these sizes, and the end of the last one: int64 (num + 1)."""
    return np.append(0, np.cumsum(sizes, dtype=np.int64))
