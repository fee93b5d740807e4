"""The n best distinct word sequences of a lattice, each with its best path.

M. Mohri and M. Riley, "An efficient algorithm for the n-best-strings problem", ICSLP 2002: A* search over
prefixes of word sequences. A prefix w_1 ... w_k represents the set of states that it leads to, each with the
cost c of its best path to the state. Its bound is

    f = min over these states s of  c(s) + beta(s),        beta(s): lowest cost from s to the end

No continuation has a lower cost, and one has this cost. Complete sequences are therefore found in the order
of their costs, and at most n * (longest sequence) prefixes are extended. On determinised lattices, the sets
are single states; other lattices are determinised on the fly.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import Path, backward
from pyasr.decode.lattices.word_graph import WordGraph


def n_best(lattice: CompactLattice, num_best: int, acoustic_scale: float, penalty: float = 0.0) -> list[Path]:
    """Up to `num_best` paths with distinct words, by increasing cost graph + acoustic_scale * acoustic +
    penalty * words."""
    graph = WordGraph.of(lattice, acoustic_scale, penalty)
    return [lattice.path(arcs, end) for arcs, end in n_best_arcs(graph, num_best)]


def n_best_arcs(graph: WordGraph, num_best: int) -> list[tuple[np.ndarray, int]]:
    """(arcs, final state) of the best path of each of the `num_best` best word sequences, by rising cost."""
    if graph.empty or num_best < 1:
        return []
    beta = backward(graph.sources, graph.targets, graph.costs, graph.finals)
    found = _Words(graph.arc_offsets, graph.targets, graph.words, graph.costs, graph.finals, beta)
    arcs, ends, states = _search(found, num_best)
    return list(zip(np.split(arcs, ends[:-1]), states.tolist()))


class _Words(NamedTuple):
    """The arrays of a `WordGraph`, and the lowest cost from each state to the end."""

    offsets: np.ndarray
    targets: np.ndarray
    words: np.ndarray
    costs: np.ndarray
    finals: np.ndarray
    beta: np.ndarray


class _PrefixEntries(NamedTuple):
    """An entry is a state that a prefix leads to, with its cost, the last arc to it and the entry before that
    arc. The entries of a prefix are consecutive."""

    states: list
    totals: list
    arcs: list
    parents: list


@njit(nogil=True, cache=True)
def _search(graph, num_best):
    """(concatenated arcs of all paths, end of each path, final states).

    The queue contains (bound, number, first entry, end of the entries); a complete sequence has one entry and
    a negative number.
    """
    entries = _PrefixEntries([np.int64(0)], [0.0], [np.int64(-1)], [np.int64(-1)])
    num_states = len(graph.finals)
    waiting = (np.full(num_states, np.inf), np.full(num_states, -1), np.full(num_states, -1))
    waiting[0][0] = 0.0
    bound = _close(graph, waiting, [np.int64(0)], entries)
    queue, number = [(bound, np.int64(1), np.int64(1), np.int64(len(entries.states)))], 1
    path_arcs, path_ends, path_states = [np.int64(0)], [np.int64(0)], [np.int64(0)]
    while len(queue) and len(path_ends) <= num_best:
        _, kind, first, last = heappop(queue)
        if kind < 0:
            _trace(first, entries, path_arcs)
            path_ends.append(len(path_arcs) - 1)
            path_states.append(entries.states[first])
            continue
        best, end = _cheapest_end(first, last, entries, graph.finals)
        number += 1
        if end >= 0:
            heappush(queue, (best, np.int64(-number), end, end + 1))
        number = _extend(graph, first, last, waiting, queue, number, entries)
    return np.array(path_arcs)[1:], np.array(path_ends)[1:], np.array(path_states)[1:]


@njit(nogil=True, cache=True)
def _cheapest_end(first, last, entries, finals):
    """(cost, entry) of the best final entry; entry -1 if none is final."""
    states, totals, best, end = entries.states, entries.totals, np.inf, -1
    for e in range(first, last):
        if totals[e] + finals[states[e]] < best:
            best, end = totals[e] + finals[states[e]], e
    return best, end


@njit(nogil=True, cache=True)
def _extend(graph, first, last, waiting, queue, number, entries):
    """Add the prefixes that are one word longer. Returns the last number assigned."""
    offsets, targets, states = graph.offsets, graph.targets, entries.states
    size = 0
    for e in range(first, last):
        size += offsets[states[e] + 1] - offsets[states[e]]
    out, came_from, labels = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    size = 0
    for e in range(first, last):
        for a in range(offsets[states[e]], offsets[states[e] + 1]):
            if graph.words[a] != 0 and graph.beta[targets[a]] < np.inf:
                out[size], came_from[size], labels[size] = a, e, graph.words[a]
                size += 1
    order = np.argsort(labels[:size], kind="mergesort")
    at = 0
    while at < size:
        word, here = labels[order[at]], [np.int64(0) for _ in range(0)]
        while at < size and labels[order[at]] == word:
            a, e = out[order[at]], came_from[order[at]]
            _wait(waiting, here, targets[a], entries.totals[e] + graph.costs[a], a, e)
            at += 1
        begin = len(states)
        bound = _close(graph, waiting, here, entries)
        number += 1
        heappush(queue, (bound, np.int64(number), np.int64(begin), np.int64(len(states))))
    return number


@njit(nogil=True, cache=True)
def _wait(waiting, here, state, total, arc, parent):
    """Record a path to `state` if it is the best so far; `here` is a heap of the waiting states."""
    least, by_arc, by_entry = waiting
    if total < least[state]:
        if least[state] == np.inf:
            heappush(here, np.int64(state))
        least[state], by_arc[state], by_entry[state] = total, arc, parent


@njit(nogil=True, cache=True)
def _close(graph, waiting, here, entries):
    """Create entries of the waiting states and of those reached by epsilon arcs. Returns the minimum of
    total + beta over them."""
    offsets, targets, words, costs, beta = graph.offsets, graph.targets, graph.words, graph.costs, graph.beta
    least, by_arc, by_entry = waiting
    bound = np.inf
    while len(here):
        s = heappop(here)
        entry, total = len(entries.states), least[s]
        entries.states.append(s)
        entries.totals.append(total)
        entries.arcs.append(by_arc[s])
        entries.parents.append(by_entry[s])
        least[s] = np.inf
        bound = min(bound, total + beta[s])
        for a in range(offsets[s], offsets[s + 1]):
            if words[a] == 0 and beta[targets[a]] < np.inf:
                _wait(waiting, here, targets[a], total + costs[a], a, entry)
    return bound


@njit(nogil=True, cache=True)
def _trace(entry, entries, path_arcs):
    """Append the arcs that lead to an entry."""
    arcs, parents, begin = entries.arcs, entries.parents, len(path_arcs)
    while arcs[entry] >= 0:
        path_arcs.append(arcs[entry])
        entry = parents[entry]
    path_arcs[begin:] = path_arcs[begin:][::-1]
