"""Lattices whose states are split by their *pending* labels: the common part of alignment with phones and
with words.

A state of the new lattice is a sequence of integers: a state of the old lattice, followed by the labels that
were read on the path but not written yet. Equal sequences are one state. States are numbered in the order of
discovery, and processed in this order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.compact_lattice import CompactLattice, compact_from_arcs
from pyasr.decode.lattices.determinize_pools import mixed


@njit(nogil=True, cache=True)
def new_states(first):
    """A table of states with one state: (numbers by hash, end of each sequence, concatenated sequences)."""
    labels = [np.int64(label) for label in first]
    return {_hash(first): np.int64(0)}, [np.int64(0), np.int64(len(labels))], labels


@njit(nogil=True, cache=True)
def _hash(content):
    key = mixed(np.uint64(len(content)))
    for label in content:
        key = mixed(key + np.uint64(label))
    return key


@njit(nogil=True, cache=True)
def num_states(states):
    return len(states[1]) - 1


@njit(nogil=True, cache=True)
def content_of(states, number):
    """The sequence of a state, int64."""
    _, ends, labels = states
    begin = ends[number]
    content = np.empty(ends[number + 1] - begin, np.int64)
    for i in range(len(content)):
        content[i] = labels[begin + i]
    return content


@njit(nogil=True, cache=True)
def _is(states, number, content):
    _, ends, labels = states
    begin = ends[number]
    if ends[number + 1] - begin != len(content):
        return False
    for i in range(len(content)):
        if labels[begin + i] != content[i]:
            return False
    return True


@njit(nogil=True, cache=True)
def number_of(states, content):
    """The number of a state; a new state gets the next number."""
    table, ends, labels = states
    key = _hash(content)
    while key in table and not _is(states, table[key], content):
        key = mixed(key + np.uint64(1))
    if key not in table:
        table[key] = len(ends) - 1
        for label in content:
            labels.append(label)
        ends.append(len(labels))
    return table[key]


@njit(nogil=True, cache=True)
def new_arcs():
    """Empty lists: sources, targets, words, old arcs whose costs the arcs have (-1: none), ends of strings,
    concatenated strings."""
    nothing = [np.int64(0) for _ in range(0)]
    return nothing.copy(), nothing.copy(), nothing.copy(), nothing.copy(), [np.int64(0)], nothing.copy()


@njit(nogil=True, cache=True)
def write(arcs, source, target, word, old, string):
    """Add an arc."""
    sources, targets, words, olds, ends, labels = arcs
    sources.append(source)
    targets.append(target)
    words.append(word)
    olds.append(old)
    for label in string:
        labels.append(label)
    ends.append(len(labels))


@njit(nogil=True, cache=True)
def as_arrays(arcs):
    """Arcs as arrays, int64."""
    sources, targets, words, olds, ends, labels = arcs
    return (
        np.array(sources),
        np.array(targets),
        np.array(words),
        np.array(olds),
        np.array(ends),
        np.array(labels),
    )


def unfolded(lattice: CompactLattice, arcs: tuple[np.ndarray, ...], last: int) -> CompactLattice:
    """The lattice of `arcs`, derived from `lattice`, from state 0 to state `last`, the only final state."""
    sources, targets, words, olds, ends, labels = arcs
    graph, acoustic = (
        np.append(costs, np.float32(0))[olds] for costs in (lattice.graph_costs, lattice.acoustic_costs)
    )
    finals = np.full(1 + max(last, sources.max(initial=0), targets.max(initial=0)), np.inf)
    finals[last] = 0
    no_strings = np.zeros(len(finals) + 1, np.int64), np.empty(0, np.int32)
    found = compact_from_arcs(
        0,
        sources,
        targets,
        words,
        graph,
        acoustic,
        (ends, labels.astype(np.int32)),
        finals,
        finals,
        final_strings=no_strings,
    )
    return replace(found, reached_final=lattice.reached_final, stats=lattice.stats)
