"""Encoding and decoding of Kaldi's binary lattices: OpenFst vector transducers of arc type `lattice4` or
`compactlattice44`.

After a header, each state has: final weight, int64 number of arcs, arcs. An arc has: input label, output
label, weight, next state. A weight is two floats (graph cost, acoustic cost); in a compact lattice, an int32
count and that many transition-ids follow.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.array_copies import copy_into
from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.compact_lattice import CompactLattice, compact_from_arcs
from pyasr.decode.lattices.lattice import Lattice, from_arcs

MAGIC = struct.pack("<i", 2125659606)
IS_COMPACT = {b"lattice4": False, b"compactlattice44": True}
_EXPANDED_MUTABLE = 3
DAMAGED, INCOMPLETE = -2, -1


def encode(lattice: Lattice | CompactLattice) -> bytes:
    """The bytes of a lattice's transducer, including magic number and header."""
    compact = isinstance(lattice, CompactLattice)
    name = next(name for name, is_compact in IS_COMPACT.items() if is_compact == compact)
    header = struct.pack(
        f"<i6si{len(name)}siiQqqq",
        6,
        b"vector",
        len(name),
        name,
        2,
        0,
        _EXPANDED_MUTABLE,
        -1 if lattice.empty else 0,
        lattice.num_states,
        lattice.num_arcs,
    )
    body = _compact_body(lattice) if isinstance(lattice, CompactLattice) else _raw_body(lattice)
    return MAGIC + header + body.astype("<i4", copy=False).tobytes()


def _raw_body(lattice: Lattice) -> np.ndarray:
    """int32 words of all states: 4 per state, 5 per arc."""
    offsets = lattice.arc_offsets
    words = np.empty(4 * lattice.num_states + 5 * lattice.num_arcs, np.int32)
    heads = 4 * np.arange(lattice.num_states) + 5 * offsets[:-1]
    counts = np.diff(offsets)
    words[heads], words[heads + 1] = lattice.final_graph.view(np.int32), lattice.final_acoustic.view(np.int32)
    words[heads + 2], words[heads + 3] = counts, 0
    firsts = np.repeat(heads + 4 - 5 * offsets[:-1], counts) + 5 * np.arange(lattice.num_arcs)
    columns = (
        lattice.ilabels,
        lattice.olabels,
        lattice.graph_costs.view(np.int32),
        lattice.acoustic_costs.view(np.int32),
        lattice.targets,
    )
    for place, column in enumerate(columns):
        words[firsts + place] = column
    return words


class _Weighted(NamedTuple):
    """Costs (float32 bits as int32) and strings, tids[offsets[i]:offsets[i + 1]], of arcs or final states."""

    graph: np.ndarray
    acoustic: np.ndarray
    offsets: np.ndarray
    tids: np.ndarray


def _compact_body(lattice: CompactLattice) -> np.ndarray:
    arcs = _Weighted(
        lattice.graph_costs.view(np.int32),
        lattice.acoustic_costs.view(np.int32),
        lattice.string_offsets,
        lattice.tids,
    )
    finals = _Weighted(
        lattice.final_graph.view(np.int32),
        lattice.final_acoustic.view(np.int32),
        lattice.final_offsets,
        lattice.final_tids,
    )
    return _compact_words(lattice.arc_offsets, lattice.targets, lattice.words, arcs, finals)


@njit(nogil=True, cache=True)
def _compact_words(arc_offsets, targets, words, arcs, finals):
    """int32 words of all states of a compact lattice."""
    graph, acoustic, offsets, tids = arcs.graph, arcs.acoustic, arcs.offsets, arcs.tids
    final_graph = finals.graph
    final_acoustic = finals.acoustic
    final_offsets = finals.offsets
    final_tids = finals.tids
    num_states = len(final_graph)
    out = np.empty(5 * num_states + 6 * len(targets) + len(tids) + len(final_tids), np.int32)
    at = 0
    for s in range(num_states):
        string = final_tids[final_offsets[s] : final_offsets[s + 1]]
        out[at], out[at + 1], out[at + 2] = final_graph[s], final_acoustic[s], len(string)
        at += 3
        copy_into(out, at, string)
        at += len(string)
        out[at], out[at + 1] = arc_offsets[s + 1] - arc_offsets[s], 0
        at += 2
        for a in range(arc_offsets[s], arc_offsets[s + 1]):
            string = tids[offsets[a] : offsets[a + 1]]
            out[at] = words[a]
            out[at + 1] = words[a]
            out[at + 2] = graph[a]
            out[at + 3] = acoustic[a]
            out[at + 4] = len(string)
            at += 5
            copy_into(out, at, string)
            at += len(string)
            out[at] = targets[a]
            at += 1
    return out


def measure(words: np.ndarray, num_states: int, compact: bool) -> tuple[int, int, int, int]:
    """(length of `num_states` states in `words`, int32; number of arcs; of transition-ids of arcs; of
    transition-ids of final states).

    The length is INCOMPLETE if `words` end too early, DAMAGED if they cannot be a lattice.
    """
    return _measure_compact(words, num_states) if compact else (*_measure_raw(words, num_states), 0, 0)


@njit(nogil=True, cache=True)
def _measure_raw(words, num_states):
    at, num_arcs = 0, 0
    for _ in range(num_states):
        if at + 4 > len(words):
            return INCOMPLETE, 0
        count = np.int64(words[at + 2])
        if count < 0 or words[at + 3] != 0:
            return DAMAGED, 0
        at += 4 + 5 * count
        num_arcs += count
    return (at if at <= len(words) else INCOMPLETE), num_arcs


@njit(nogil=True, cache=True)
def _measure_compact(words, num_states):
    at, num_arcs, num_tids, num_final_tids = 0, 0, 0, 0
    for _ in range(num_states):
        if at + 3 > len(words):
            return INCOMPLETE, 0, 0, 0
        size = np.int64(words[at + 2])
        if size < 0:
            return DAMAGED, 0, 0, 0
        num_final_tids += size
        at += 3 + size
        if at + 2 > len(words):
            return INCOMPLETE, 0, 0, 0
        count = np.int64(words[at])
        if count < 0 or words[at + 1] != 0:
            return DAMAGED, 0, 0, 0
        at += 2
        num_arcs += count
        for _ in range(count):
            if at + 6 > len(words):
                return INCOMPLETE, 0, 0, 0
            size = np.int64(words[at + 4])
            if size < 0:
                return DAMAGED, 0, 0, 0
            num_tids += size
            at += 6 + size
    return (at if at <= len(words) else INCOMPLETE), num_arcs, num_tids, num_final_tids


@njit(nogil=True, cache=True)
def _unpack_raw(words, num_states, num_arcs):
    """Rows (source, tid, word, graph, acoustic, target) of arcs, and rows of final costs; floats as their
    bits."""
    arcs, finals = np.empty((6, num_arcs), np.int32), np.empty((2, num_states), np.int32)
    at, a = 0, 0
    for s in range(num_states):
        finals[0, s], finals[1, s], count = words[at], words[at + 1], words[at + 2]
        at += 4
        for _ in range(count):
            arcs[0, a] = s
            for field in range(5):
                arcs[field + 1, a] = words[at + field]
            at += 5
            a += 1
    return arcs, finals


@njit(nogil=True, cache=True)
def _unpack_compact(words, num_states, num_arcs, num_tids, num_final_tids):
    """Rows (source, word, graph, acoustic, target) of arcs, rows of final costs, and the strings of both;
    floats as their bits."""
    arcs, finals = np.empty((5, num_arcs), np.int32), np.empty((2, num_states), np.int32)
    offsets, tids = np.zeros(num_arcs + 1, np.int64), np.empty(num_tids, np.int32)
    final_offsets, final_tids = np.zeros(num_states + 1, np.int64), np.empty(num_final_tids, np.int32)
    at, a = 0, 0
    for s in range(num_states):
        finals[0, s], finals[1, s], size = words[at], words[at + 1], words[at + 2]
        final_offsets[s + 1] = final_offsets[s] + size
        copy_into(final_tids, final_offsets[s], words[at + 3 : at + 3 + size])
        count = words[at + 3 + size]
        at += 5 + size
        for _ in range(count):
            size = words[at + 4]
            arcs[0, a], arcs[1, a], arcs[2, a], arcs[3, a] = s, words[at + 1], words[at + 2], words[at + 3]
            offsets[a + 1] = offsets[a] + size
            copy_into(tids, offsets[a], words[at + 5 : at + 5 + size])
            arcs[4, a] = words[at + 5 + size]
            at += 6 + size
            a += 1
    return arcs, finals, offsets, tids, final_offsets, final_tids


def decode(
    words: np.ndarray, start: int, num_states: int, sizes: tuple[int, int, int], compact: bool, name: str
) -> Lattice | CompactLattice:
    """The lattice of the int32 `words`; `sizes` from `measure`: numbers of arcs, transition-ids of arcs and
    of final states.

    Raises ValueError for a negative label, an arc to a state that does not exist, or a cost that is not a
    number, and UserError, naming `name`, for a cycle.
    """
    if compact:
        arcs, finals, *strings = _unpack_compact(words, num_states, *sizes)
        source, word, graph, acoustic, target = arcs
        labels = [word, strings[1], strings[3]]
    else:
        arcs, finals = _unpack_raw(words, num_states, sizes[0])
        source, tid, word, graph, acoustic, target = arcs
        labels = [tid, word]
    if any(column.min(initial=0) < 0 for column in labels):
        raise ValueError("a negative label")
    if len(target) and not 0 <= target.min() <= target.max() < num_states:
        raise ValueError(f"an arc to a state outside its {num_states} states")
    graph, acoustic, final_graph, final_acoustic = costs = [
        row.view(np.float32) for row in (graph, acoustic, *finals)
    ]
    if any(np.isnan(column).any() for column in costs):
        raise ValueError("a cost that is not a number")
    if compact:
        return compact_from_arcs(
            start,
            source,
            target,
            word,
            graph,
            acoustic,
            strings[:2],
            final_graph,
            final_acoustic,
            final_strings=strings[2:],
            name=name,
        )
    return from_arcs(
        start, source, target, tid, word, graph, acoustic, final_graph, final_acoustic, name=name
    )
