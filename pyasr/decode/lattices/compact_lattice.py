"""Compact lattices: acceptors of words whose arcs carry strings of transition-ids, as Kaldi's decoders write
them.

The words of a path are those of its arcs. Its transition-ids are the strings of its arcs and of its final
state, concatenated. The frames of an arc's string are not those of its word, because determinisation moves
transition-ids towards the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.lattice import (
    DecodeStats,
    Lattice,
    Path,
    States,
    has_end,
    kept_states,
    path_costs,
    ranks,
)


@dataclass(frozen=True)
class CompactLattice(States):
    """Arcs sorted by source; states in topological order (every arc goes to a higher number), state 0 is the
    start.

    sources, targets, words      int32 (num_arcs); word 0: no word
    graph_costs, acoustic_costs  float32 (num_arcs)
    string_offsets, tids         int64 (num_arcs + 1), int32: arc a has the transition-ids
                                 tids[string_offsets[a]:string_offsets[a + 1]]
    final_graph, final_acoustic  float32 (num_states), inf where a state is not final
    final_offsets, final_tids    int64 (num_states + 1), int32: strings of the final states, empty for the
                                 others
    reached_final                False if the search ended outside the graph's final states
    """

    sources: np.ndarray
    targets: np.ndarray
    words: np.ndarray
    graph_costs: np.ndarray
    acoustic_costs: np.ndarray
    string_offsets: np.ndarray
    tids: np.ndarray
    final_graph: np.ndarray
    final_acoustic: np.ndarray
    final_offsets: np.ndarray
    final_tids: np.ndarray
    reached_final: bool = True
    stats: DecodeStats | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Frames of each arc, int64 (num_arcs)."""
        return np.diff(self.string_offsets)

    @property
    def num_frames(self) -> int:
        """Frames of the longest path; in a lattice from a decoder, all paths have the same number."""
        ends = np.isfinite(self.final_graph)
        return int((state_times(self) + np.diff(self.final_offsets))[ends].max(initial=0))

    @property
    def depth(self) -> float:
        """Mean number of arcs that cross a frame, as computed by Kaldi's lattice-depth."""
        return float(len(self.tids) + len(self.final_tids)) / max(self.num_frames, 1)

    def string(self, arc: int) -> np.ndarray:
        """Transition-ids of an arc."""
        return self.tids[self.string_offsets[arc] : self.string_offsets[arc + 1]]

    def final_string(self, state: int) -> np.ndarray:
        """Transition-ids of a final state."""
        return self.final_tids[self.final_offsets[state] : self.final_offsets[state + 1]]

    def path(self, arcs: np.ndarray, end: int) -> Path:
        """The path along `arcs` that ends in the final state `end`."""
        words, (_, tids) = self.words[arcs], pick_strings(self.string_offsets, self.tids, arcs)
        return Path(
            words[words != 0].tolist(), np.append(tids, self.final_string(end)), *path_costs(self, arcs, end)
        )

    def select(self, keep: np.ndarray, final: np.ndarray) -> CompactLattice:
        """The arcs and final states selected by the bool arrays, states renumbered; states without a kept arc
        are dropped, except 0."""
        used, number = kept_states(self, keep)
        arcs = {name: getattr(self, name)[keep] for name in ("words", "graph_costs", "acoustic_costs")}
        finals = {
            name: np.where(final, getattr(self, name), np.float32(np.inf))[used]
            for name in ("final_graph", "final_acoustic")
        }
        string_offsets, tids = pick_strings(self.string_offsets, self.tids, np.flatnonzero(keep))
        lengths = np.where(final, np.diff(self.final_offsets), 0)[used]
        _, final_tids = pick_strings(self.final_offsets, self.final_tids, np.flatnonzero(used & final))
        return replace(
            self,
            sources=number[self.sources[keep]],
            targets=number[self.targets[keep]],
            **arcs,
            string_offsets=string_offsets,
            tids=tids,
            **finals,
            final_offsets=np.append(0, np.cumsum(lengths)),
            final_tids=final_tids,
        )


def empty_compact() -> CompactLattice:
    """The lattice without states."""
    ints, floats, offsets = np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(1, np.int64)
    return CompactLattice(ints, ints, ints, floats, floats, offsets, ints, floats, floats, offsets, ints)


def pick_strings(offsets: np.ndarray, labels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, labels) of strings with numbers `order` (int array), from those at `offsets` in `labels`."""
    lengths = np.diff(offsets)[order]
    ends = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    places = np.repeat(offsets[:-1][order] - ends[:-1], lengths) + np.arange(ends[-1])
    return ends, labels[places]


def compact_from_arcs(
    start: int,
    sources,
    targets,
    words,
    graph_costs,
    acoustic_costs,
    strings: tuple[np.ndarray, np.ndarray],
    final_graph,
    final_acoustic,
    *,
    final_strings: tuple[np.ndarray, np.ndarray],
    reached_final: bool = True,
    name: str = "lattice",
) -> CompactLattice:
    """Build a CompactLattice from arcs and states in any order; states that cannot be reached from `start`
    are dropped.

    strings, final_strings  (offsets, transition-ids) of arcs and of states. Raises UserError for a cycle.
    """
    sources, targets = np.asarray(sources, np.int32), np.asarray(targets, np.int32)
    rank, num_kept = ranks(start, sources, targets, len(final_graph), name)
    sources, targets = rank[sources], rank[targets]
    order = np.argsort(sources, kind="stable")
    order = order[np.searchsorted(sources[order], 0) :]
    kept = np.flatnonzero(rank >= 0)
    states = np.empty(num_kept, np.int64)
    states[rank[kept]] = kept
    finals = (np.asarray(final_graph, np.float32)[states], np.asarray(final_acoustic, np.float32)[states])
    return CompactLattice(
        sources[order],
        targets[order],
        np.asarray(words, np.int32)[order],
        np.asarray(graph_costs, np.float32)[order],
        np.asarray(acoustic_costs, np.float32)[order],
        *pick_strings(*strings, order),
        *finals,
        *pick_strings(*final_strings, states),
        bool(reached_final),
    )


@njit(nogil=True, cache=True)
def _state_times(sources, targets, string_offsets, num_states):
    times = np.zeros(num_states, np.int64)
    for a in range(len(sources)):
        times[targets[a]] = max(
            times[targets[a]], times[sources[a]] + string_offsets[a + 1] - string_offsets[a]
        )
    return times


def state_times(lattice: CompactLattice) -> np.ndarray:
    """Frame of each state, int64 (num_states): transition-ids on the longest path to it."""
    return _state_times(lattice.sources, lattice.targets, lattice.string_offsets, lattice.num_states)


def depths(lattice: CompactLattice) -> np.ndarray:
    """Arcs on the longest path to each state, int64 (num_states)."""
    return _state_times(lattice.sources, lattice.targets, np.arange(lattice.num_arcs + 1), lattice.num_states)


def scale(lattice: CompactLattice, acoustic_scale: float = 1.0, lm_scale: float = 1.0) -> CompactLattice:
    """The lattice with scaled costs (Kaldi's lattice-scale)."""
    ends = np.isfinite(lattice.final_graph)
    graph, acoustic = np.float32(lm_scale), np.float32(acoustic_scale)
    return replace(
        lattice,
        graph_costs=graph * lattice.graph_costs,
        acoustic_costs=acoustic * lattice.acoustic_costs,
        final_graph=np.where(ends, graph * np.where(ends, lattice.final_graph, 0), np.inf).astype(np.float32),
        final_acoustic=np.where(ends, acoustic * np.where(ends, lattice.final_acoustic, 0), np.inf).astype(
            np.float32
        ),
    )


def to_lattice(compact: CompactLattice) -> Lattice:
    """The same paths with one transition-id per arc; words and costs are on the first arc of a string.

    The final string of a state leads to a new final state with its costs.
    """
    arcs, ends = _expand(
        compact.sources,
        compact.targets,
        compact.words,
        compact.string_offsets,
        compact.tids,
        compact.final_offsets,
        compact.final_tids,
        compact.arc_offsets,
    )
    sources, targets, ilabels, olabels, arc_of = arcs
    graph, acoustic = (
        np.append(costs, np.float32(0))[arc_of] for costs in (compact.graph_costs, compact.acoustic_costs)
    )
    final_graph, final_acoustic = (
        np.append(costs, np.float32(np.inf))[ends] for costs in (compact.final_graph, compact.final_acoustic)
    )
    return Lattice(
        sources,
        targets,
        ilabels,
        olabels,
        graph,
        acoustic,
        final_graph,
        final_acoustic,
        compact.reached_final,
        compact.stats,
    )


@njit(nogil=True, cache=True)
def _expand(sources, targets, words, offsets, tids, final_offsets, final_tids, arc_offsets):
    """((source, target, tid, word, arc or -1 after a string's first) of each new arc, state whose final costs
    each new state has or -1).

    New states inside the strings of a state are numbered between that state and the next one, so the order
    remains topological.
    """
    num_states = len(arc_offsets) - 1
    number = np.zeros(num_states + 1, np.int32)
    num_new = 0
    for s in range(num_states):
        extra = final_offsets[s + 1] - final_offsets[s]
        num_new += extra
        for a in range(arc_offsets[s], arc_offsets[s + 1]):
            length = offsets[a + 1] - offsets[a]
            extra += max(length - 1, 0)
            num_new += max(length, 1)
        number[s + 1] = number[s] + 1 + extra
    arcs = np.zeros((5, num_new), np.int32)
    ends = np.full(number[num_states], -1, np.int64)
    k = 0
    for s in range(num_states):
        first_arc, last_arc = arc_offsets[s], arc_offsets[s + 1]
        fresh = number[s] + 1
        for a in range(first_arc, last_arc):  # the arcs out of s itself
            length = offsets[a + 1] - offsets[a]
            arcs[0, k], arcs[1, k] = number[s], number[targets[a]]
            arcs[2, k], arcs[3, k], arcs[4, k] = tids[offsets[a]] if length else 0, words[a], a
            if length > 1:
                arcs[1, k] = fresh
                fresh += length - 1
            k += 1
        begin, end = final_offsets[s], final_offsets[s + 1]
        ends[number[s] if begin == end else fresh + end - begin - 1] = s
        if begin < end:
            arcs[0, k], arcs[1, k], arcs[2, k], arcs[4, k] = number[s], fresh, final_tids[begin], -1
            k += 1
        fresh = number[s] + 1
        for a in range(first_arc, last_arc):  # the arcs inside the strings
            for i in range(offsets[a] + 1, offsets[a + 1]):
                arcs[0, k], arcs[2, k], arcs[4, k] = fresh, tids[i], -1
                arcs[1, k] = number[targets[a]] if i + 1 == offsets[a + 1] else fresh + 1
                fresh += 1
                k += 1
        for i in range(begin + 1, end):
            arcs[0, k], arcs[1, k], arcs[2, k], arcs[4, k] = fresh, fresh + 1, final_tids[i], -1
            fresh += 1
            k += 1
    return arcs, ends


def to_compact(lattice: Lattice) -> CompactLattice:
    """The same paths on fewer states: a state with one arc in and one arc out is removed unless an arc would
    get two words."""
    arcs, string_offsets, tids, kept = _merge_chains(
        lattice.sources,
        lattice.targets,
        lattice.ilabels,
        lattice.olabels,
        lattice.graph_costs,
        lattice.acoustic_costs,
        np.isfinite(lattice.final_graph),
        lattice.arc_offsets,
    )
    number = np.cumsum(kept, dtype=np.int32) - 1
    sources, targets, words, graph, acoustic = arcs
    nothing = np.zeros(int(kept.sum()) + 1, np.int64), np.empty(0, np.int32)
    return CompactLattice(
        number[sources],
        number[targets],
        words,
        graph,
        acoustic,
        string_offsets,
        tids,
        lattice.final_graph[kept],
        lattice.final_acoustic[kept],
        *nothing,
        lattice.reached_final,
        lattice.stats,
    )


@njit(nogil=True, cache=True)
def _chain_ends(sources, targets, words, final, arc_offsets):
    """Whether each state remains: the start, final states, states with several arcs in or out, and states
    between two words."""
    num_states = len(final)
    num_in = np.zeros(num_states, np.int64)
    for target in targets:
        num_in[target] += 1
    kept, carried = np.ones(num_states, np.bool_), np.zeros(num_states, np.int32)
    for a in range(len(sources)):
        s, t = sources[a], targets[a]
        word = words[a] if kept[s] or words[a] else carried[s]
        if num_in[t] != 1 or arc_offsets[t + 1] - arc_offsets[t] != 1 or final[t]:
            continue
        kept[t] = word != 0 and words[arc_offsets[t]] != 0
        carried[t] = word
    return kept


@njit(nogil=True, cache=True)
def _merge_chains(sources, targets, tids, words, graph, acoustic, final, arc_offsets):
    """((source, target, word, graph, acoustic) of the merged arcs in old state numbers, string offsets,
    transition-ids, kept states)."""
    kept = _chain_ends(sources, targets, words, final, arc_offsets)
    num_new = 0
    for s in sources:
        num_new += kept[s]
    new_sources = np.empty(num_new, np.int32)
    new_targets = np.empty(num_new, np.int32)
    new_words = np.zeros(num_new, np.int32)
    new_graph, new_acoustic = np.zeros(num_new, np.float32), np.zeros(num_new, np.float32)
    offsets, labels = np.zeros(num_new + 1, np.int64), np.empty(len(tids), np.int32)
    k, size = 0, 0
    for first in range(len(sources)):
        if not kept[sources[first]]:
            continue
        new_sources[k], a, more = sources[first], first, True
        while more:
            new_words[k] = max(new_words[k], words[a])
            new_graph[k] += graph[a]
            new_acoustic[k] += acoustic[a]
            if tids[a]:
                labels[size] = tids[a]
                size += 1
            new_targets[k] = targets[a]
            more = not kept[targets[a]]
            a = arc_offsets[targets[a]]
        k += 1
        offsets[k] = size
    return (new_sources, new_targets, new_words, new_graph, new_acoustic), offsets, labels[:size].copy(), kept


def with_one_end(lattice: CompactLattice) -> CompactLattice:
    """The same paths with a wordless arc from each final state to a single new last state, which is final
    with cost 0."""
    if not has_end(lattice):
        return lattice
    ends, last = np.flatnonzero(np.isfinite(lattice.final_graph)), lattice.num_states
    sources, targets, words, graph, acoustic = (
        np.append(column, more)
        for column, more in (
            (lattice.sources, ends),
            (lattice.targets, np.full(len(ends), last)),
            (lattice.words, np.zeros(len(ends), np.int32)),
            (lattice.graph_costs, lattice.final_graph[ends]),
            (lattice.acoustic_costs, lattice.final_acoustic[ends]),
        )
    )
    lengths = np.append(lattice.lengths, np.diff(lattice.final_offsets)[ends])
    tids = np.append(lattice.tids, lattice.final_tids)
    finals = np.append(np.full(last, np.inf), 0)
    closed = compact_from_arcs(
        0,
        sources,
        targets,
        words,
        graph,
        acoustic,
        (np.append(0, np.cumsum(lengths)), tids),
        finals,
        finals,
        final_strings=(np.zeros(last + 2, np.int64), np.empty(0, np.int32)),
    )
    return replace(closed, reached_final=lattice.reached_final, stats=lattice.stats)


def without_epsilons(lattice: CompactLattice) -> CompactLattice:
    """The same paths without arcs that have neither word nor transition-ids; their costs move to the next arc
    or to the final state.

    If several sequences of such arcs lead from a state to the end, that of lowest cost is used.
    """
    if not has_end(lattice):
        return lattice
    closed = with_one_end(lattice)
    is_epsilon = (closed.words == 0) & (closed.lengths == 0)
    sources, arcs, graph, acoustic, finals = _skip_epsilons(
        closed.arc_offsets, closed.targets, is_epsilon, closed.graph_costs, closed.acoustic_costs
    )
    strings = pick_strings(closed.string_offsets, closed.tids, arcs)
    found = compact_from_arcs(
        0,
        sources,
        closed.targets[arcs],
        closed.words[arcs],
        graph,
        acoustic,
        strings,
        finals[0],
        finals[1],
        final_strings=(np.zeros(closed.num_states + 1, np.int64), np.empty(0, np.int32)),
    )
    return replace(found, reached_final=lattice.reached_final, stats=lattice.stats)


@njit(nogil=True, cache=True)
def _skip_epsilons(offsets, targets, is_epsilon, graph, acoustic):
    """(source, old arc after skipped epsilons, graph and acoustic costs) of each new arc, final costs (2,
    states); the last is final."""
    num_states = len(offsets) - 1
    finals, needed = np.full((2, num_states), np.inf), np.zeros(num_states, np.bool_)
    needed[0] = True
    needed[targets[~is_epsilon]] = True
    # the first entry of each list only sets its type
    sources, arcs, graphs, acoustics = [np.int64(0)], [np.int64(0)], [0.0], [0.0]
    for source in np.flatnonzero(needed):
        stack = [(source, 0.0, 0.0)]
        while stack:
            state, g, c = stack.pop()
            if state == num_states - 1 and g + c < finals[0, source] + finals[1, source]:
                finals[0, source], finals[1, source] = g, c
            for a in range(offsets[state], offsets[state + 1]):
                if is_epsilon[a]:
                    stack.append((np.int64(targets[a]), g + graph[a], c + acoustic[a]))
                else:
                    sources.append(source)
                    arcs.append(a)
                    graphs.append(g + graph[a])
                    acoustics.append(c + acoustic[a])
    return np.array(sources)[1:], np.array(arcs)[1:], np.array(graphs)[1:], np.array(acoustics)[1:], finals
