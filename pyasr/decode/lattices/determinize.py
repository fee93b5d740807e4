"""Determinisation of lattices on words with alignments: each word sequence keeps only its best path, with its
transition-ids.

    compact, beam = determinize(lattice, beam=6.0, acoustic_scale=1 / 12)

The algorithm of D. Povey et al., "Generating exact lattices in the WFST framework", ICASSP 2012 (the
behaviour of Kaldi's lattice-determinize-pruned); docs/decoding/lattices.md has its equations, hazards and
cost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import option
from pyasr.decode.lattices import determinize_kernels as kernels
from pyasr.decode.lattices.compact_lattice import CompactLattice, compact_from_arcs, empty_compact, to_compact
from pyasr.decode.lattices.determinize_pools import (
    ARCS,
    BYTES_PER_ARC,
    STATES,
    STRINGS,
    Pools,
    final_strings,
    new_pools,
)
from pyasr.decode.lattices.lattice import Lattice, best_arcs, has_end, trim

DELTA = 2.0**-10


@dataclass(frozen=True)
class DeterminizeOptions:
    """Options of lattice determinisation."""

    heading = "search"

    determinize: bool = option(
        True, "keep only the best path of each word sequence; false: write raw lattices of the search"
    )
    determinize_mb: float = option(
        50.0,
        f"MiB of memory to determinise a lattice, in addition to {BYTES_PER_ARC} bytes per arc; the beam is "
        "narrowed to fit",
        minimum=0.0,
        maximum=4096.0,
        only=if_set("determinize"),
        rare=True,
    )


def determinize(
    lattice: Lattice, beam: float, acoustic_scale: float, max_mb: float = 50.0
) -> tuple[CompactLattice, float]:
    """(the compact lattice, the beam reached).

    The result contains each word sequence whose best path is within `beam` of the best path of all, by
    graph + acoustic_scale * acoustic costs, with that path only. Of paths of equal cost, it keeps the one of
    lower graph cost, then the one of fewer transition-ids, then the one with the larger first differing
    transition-id (Kaldi's order of compact weights). No state has two arcs with the same word, or an arc
    without a word.

    max_mb  memory in MiB, in addition to BYTES_PER_ARC for each arc of `lattice`; when it is used up, the
            result contains the word sequences within the beam reached, and always the best one
    """
    lattice = _finite(lattice)
    raw = None if lattice.empty else _prepare(lattice, acoustic_scale)
    if raw is None or raw.beta[0] == kernels.NEVER:
        return replace(empty_compact(), reached_final=lattice.reached_final, stats=lattice.stats), beam
    pools = new_pools(
        lattice.num_states, lattice.num_frames, lattice.num_arcs + max_mb * 2**20 / BYTES_PER_ARC
    )
    reached = kernels.search(raw, pools, _units(beam), _units(DELTA)) / kernels.UNITS
    compact = _result(pools, acoustic_scale)
    if not has_end(compact):
        compact, reached = _only_best(lattice, acoustic_scale), 0.0
    return replace(compact, reached_final=lattice.reached_final, stats=lattice.stats), min(beam, reached)


class Determinizer:
    """Function that determinises a lattice of the search within the lattice beam; safe to call from several
    threads at once."""

    def __init__(self, options: DeterminizeOptions, lattice_beam: float, acoustic_scale: float):
        self.options, self.beam, self.scale = options, lattice_beam, acoustic_scale

    def __call__(self, lattice: Lattice) -> Lattice | CompactLattice:
        """The compact lattice, its `stats` with seconds and beam; the lattice itself if determinisation is
        switched off."""
        if not self.options.determinize:
            return lattice
        begin = time.thread_time()
        compact, reached = determinize(lattice, self.beam, self.scale, self.options.determinize_mb)
        narrowed, seconds = reached if reached < self.beam else None, time.thread_time() - begin
        return replace(
            compact,
            stats=lattice.stats and replace(lattice.stats, determinize_s=seconds, narrowed_beam=narrowed),
        )


def _units(value) -> np.int64:
    return np.int64(round(value * kernels.UNITS))


def _finite(lattice: Lattice) -> Lattice:
    """The lattice without arcs of infinite cost."""
    finite = np.isfinite(lattice.graph_costs) & np.isfinite(lattice.acoustic_costs)
    return lattice if finite.all() else lattice.select(finite, np.isfinite(lattice.final_graph))


def _only_best(lattice: Lattice, acoustic_scale: float) -> CompactLattice:
    """The best path, which must exist, as a compact lattice."""
    found = best_arcs(lattice, acoustic_scale)
    assert found is not None
    arcs, end = found
    return to_compact(
        lattice.select(np.isin(np.arange(lattice.num_arcs), arcs), np.arange(lattice.num_states) == end)
    )


def _prepare(lattice: Lattice, acoustic_scale: float) -> kernels.Raw:
    """The input of the kernels for a lattice."""
    has_word = lattice.olabels != 0
    order = np.argsort(2 * lattice.sources.astype(np.int64) + has_word, kind="stable")
    arcs = np.empty(lattice.num_arcs, kernels.RAW_ARC)
    columns = (lattice.targets, lattice.ilabels, lattice.olabels, lattice.graph_costs, lattice.acoustic_costs)
    for name, column in zip(kernels.RAW_ARC.names or (), columns):
        arcs[name] = column[order]
    num_words = np.bincount(lattice.sources[has_word], minlength=lattice.num_states)
    offsets = np.zeros((lattice.num_states + 1, 2), np.int64)
    offsets[:, 0] = lattice.arc_offsets
    offsets[:-1, 1] = offsets[1:, 0] - num_words
    final = np.isfinite(lattice.final_graph)
    ends = [
        np.rint(np.where(final, costs, 0) * (scale * kernels.UNITS)).astype(np.int64)
        for costs, scale in ((lattice.final_graph, 1.0), (lattice.final_acoustic, acoustic_scale))
    ]
    ends[0][~final] = kernels.NEVER
    scale = float(acoustic_scale)
    return kernels.Raw(
        arcs,
        offsets,
        scale,
        ends[0],
        ends[1],
        kernels.backward(arcs, offsets, scale, *ends),
        final | (num_words > 0),
    )


def _result(pools: Pools, acoustic_scale: float) -> CompactLattice:
    """The lattice of the states and arcs in the pools, without dead ends from a search that ended early."""
    arcs, states = pools.arcs[: pools.counts[ARCS]], pools.states[: pools.counts[STATES]]
    final = states["final"] >= 0
    finals = [
        np.where(final, states[name] / (kernels.UNITS * scale), np.inf)
        for name, scale in (("final_graph", 1.0), ("final_acoustic", acoustic_scale))
    ]
    return trim(
        compact_from_arcs(
            0,
            arcs["source"],
            arcs["target"],
            arcs["word"],
            arcs["graph"] / kernels.UNITS,
            arcs["acoustic"] / (kernels.UNITS * acoustic_scale),
            (np.append(arcs["begin"], pools.counts[STRINGS]), pools.strings),
            finals[0],
            finals[1],
            final_strings=final_strings(pools.nodes, states),
        )
    )
