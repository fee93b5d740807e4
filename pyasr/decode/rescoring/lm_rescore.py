"""Rescoring of a lattice with a language model: composition on the fly with a back-off model of any order.

    rescored = rescore(lattice, [(old, -1.0), (new, 1.0)])         # as two calls of Kaldi's lattice-lmrescore

A path w_1 ... w_k gets `weight` * -ln p(w_1 ... w_k, end) added to its graph cost. States of the result are
the reachable pairs of a lattice state and a history of the model. Words, acoustic costs and transition-ids
stay on their arcs. A lattice with one path for each word sequence keeps this property.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pyasr.decode.lattices.compact_lattice import CompactLattice, pick_strings
from pyasr.lang.grammars.backoff_lm import BackoffLm


def rescore(lattice: CompactLattice, models: Iterable[tuple[BackoffLm, float]]) -> CompactLattice:
    """The lattice with `weight` times each model's cost of the words added to the graph costs."""
    for model, weight in models:
        lattice = add_lm(lattice, model, weight)
    return lattice


def add_lm(lattice: CompactLattice, model: BackoffLm, weight: float) -> CompactLattice:
    """The lattice with `weight` times the model's cost of the words added to the graph costs."""
    if lattice.empty:
        return lattice
    composed, costs, ends = compose(lattice, model)
    return add_costs(composed, weight * costs, weight * ends)


def compose(lattice: CompactLattice, model: BackoffLm) -> tuple[CompactLattice, np.ndarray, np.ndarray]:
    """(a lattice of the same paths with one state for each model history; the model's cost of each arc's
    word, float64; its cost of the end of the sentence at each final state, float64). The lattice must not be
    empty."""
    return of_pairs(
        lattice,
        *model.compose(lattice.arc_offsets, lattice.targets, lattice.words, np.isfinite(lattice.final_graph)),
    )


def of_pairs(
    lattice: CompactLattice,
    states: np.ndarray,
    ends: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    arcs: np.ndarray,
    costs: np.ndarray,
) -> tuple[CompactLattice, np.ndarray, np.ndarray]:
    """(the lattice whose states are the pairs of a composition, `costs` and `ends` in its order); arguments
    as from `BackoffLm.compose`."""
    # arcs go to a higher state of the lattice, so this order is topological
    order = np.argsort(states, kind="stable")
    rank = np.empty(len(states), np.int32)
    rank[order] = np.arange(len(states), dtype=np.int32)
    by_source = np.argsort(rank[sources], kind="stable")
    arcs, states = arcs[by_source], states[order]
    string_offsets, tids = pick_strings(lattice.string_offsets, lattice.tids, arcs)
    final_offsets, final_tids = pick_strings(lattice.final_offsets, lattice.final_tids, states)
    composed = replace(
        lattice,
        sources=rank[sources][by_source],
        targets=rank[targets][by_source],
        words=lattice.words[arcs],
        graph_costs=lattice.graph_costs[arcs],
        acoustic_costs=lattice.acoustic_costs[arcs],
        string_offsets=string_offsets,
        tids=tids,
        final_graph=lattice.final_graph[states],
        final_acoustic=lattice.final_acoustic[states],
        final_offsets=final_offsets,
        final_tids=final_tids,
    )
    return composed, costs[by_source], ends[order]


def add_costs(lattice: CompactLattice, costs: np.ndarray, ends: np.ndarray) -> CompactLattice:
    """The lattice with `costs` of arcs and `ends` of states added to its graph costs."""
    return replace(
        lattice,
        graph_costs=(lattice.graph_costs + costs).astype(np.float32),
        final_graph=(lattice.final_graph + ends).astype(np.float32),
    )
