"""Another language model's costs in a lattice: composition on the fly with a back-off model, whose order may be any.

    rescored = rescore(lattice, [(old, -1.0), (new, 1.0)])         # what Kaldi's lattice-lmrescore does twice

A path w_1 ... w_k gets `weight` * -ln p(w_1 ... w_k, end) added to its graph cost. States of the result are pairs of a state of the lattice
and a history of the model, those that occur; words, acoustic costs and transition-ids stay on their arcs. A lattice with one path for each
word sequence stays one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pyasr.decode.compact import CompactLattice, pick_strings
from pyasr.lang.backoff_lm import BackoffLm


def rescore(lattice: CompactLattice, models: Iterable[tuple[BackoffLm, float]]) -> CompactLattice:
    """The lattice with `weight` times each model's cost of the words added to the graph costs."""
    for model, weight in models:
        lattice = add_lm(lattice, model, weight)
    return lattice


def add_lm(lattice: CompactLattice, model: BackoffLm, weight: float) -> CompactLattice:
    """The lattice with `weight` times the model's cost of the words added to the graph costs."""
    if lattice.empty:
        return lattice
    found = model.compose(lattice.arc_offsets, lattice.targets, lattice.words, np.isfinite(lattice.final_graph))
    states, ends, sources, targets, arcs, costs = found
    order = np.argsort(states, kind="stable")  # arcs go to a higher state of the lattice, so this order is topological
    rank = np.empty(len(states), np.int32)
    rank[order] = np.arange(len(states), dtype=np.int32)
    by_source = np.argsort(rank[sources], kind="stable")
    arcs, costs, states = arcs[by_source], costs[by_source], states[order]
    string_offsets, tids = pick_strings(lattice.string_offsets, lattice.tids, arcs)
    final_offsets, final_tids = pick_strings(lattice.final_offsets, lattice.final_tids, states)
    return replace(lattice, sources=rank[sources][by_source], targets=rank[targets][by_source], words=lattice.words[arcs],
                   graph_costs=(lattice.graph_costs[arcs] + weight * costs).astype(np.float32),
                   acoustic_costs=lattice.acoustic_costs[arcs], string_offsets=string_offsets, tids=tids,
                   final_graph=(lattice.final_graph[states] + weight * ends[order]).astype(np.float32),
                   final_acoustic=lattice.final_acoustic[states], final_offsets=final_offsets, final_tids=final_tids)
