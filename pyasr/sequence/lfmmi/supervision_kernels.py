"""Compiled loops of `supervision`: possible nodes of an utterance, the distinct strings of pdfs, and their
weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit


class GraphEntries(NamedTuple):
    """What `compose` takes of a `DenominatorGraph`: its entries, which are arcs, found by their source state
    or by their pdf.

    targets, pdfs      of the entries
    entries_of_source  those of state s are source_offsets[s]:source_offsets[s + 1], with their `log_probs`
    entries_of_pdf     those of pdf p are pdf_offsets[p]:pdf_offsets[p + 1], with their `log_flow` at the
                       begin of a chunk
    """

    num_states: int
    targets: np.ndarray
    pdfs: np.ndarray
    source_offsets: np.ndarray
    entries_of_source: np.ndarray
    log_probs: np.ndarray
    pdf_offsets: np.ndarray
    entries_of_pdf: np.ndarray
    log_flow: np.ndarray


@njit(nogil=True, cache=True)
def alive_nodes(lows, highs, width, offsets, successors, is_last):
    """bool (num_frames, width): whether a whole path is in node lows[t] + k in frame t.

    lows, highs  int64 (num_frames): nodes lows[t] .. highs[t] - 1 are allowed in frame t; neither decreases
    offsets, successors  the arcs between nodes, including self-loops; a path starts in node 0
    is_last      bool (num_nodes): whether a path may end in the node
    """
    num_frames = len(lows)
    alive = np.zeros((num_frames, width), np.bool_)
    alive[0, 0] = lows[0] == 0 and highs[0] > 0
    for t in range(1, num_frames):
        for k in range(highs[t - 1] - lows[t - 1]):
            if alive[t - 1, k]:
                node = lows[t - 1] + k
                for a in range(offsets[node], offsets[node + 1]):
                    to = successors[a]
                    if lows[t] <= to < highs[t]:
                        alive[t, to - lows[t]] = True
    for t in range(num_frames - 1, -1, -1):
        for k in range(highs[t] - lows[t]):
            node = lows[t] + k
            continues = t == num_frames - 1 and is_last[node]
            if t < num_frames - 1:
                for a in range(offsets[node], offsets[node + 1]):
                    to = successors[a]
                    continues |= lows[t + 1] <= to < highs[t + 1] and alive[t + 1, to - lows[t + 1]]
            alive[t, k] &= continues
    return alive


@njit(nogil=True, cache=True)
def _find_or_add(sets, members):
    """The index of `members` in `sets`; new members are appended."""
    for k in range(len(sets)):
        if len(sets[k]) == len(members) and (sets[k] == members).all():
            return k
    sets.append(members)
    return len(sets) - 1


@njit(nogil=True, cache=True)
def _reached(nodes, low, alive_now, offsets, successors, marks):
    """Mark (relative to `low`) the alive successors of `nodes`."""
    marks[:] = False
    for node in nodes:
        for a in range(offsets[node], offsets[node + 1]):
            k = successors[a] - low
            if 0 <= k < len(marks) and alive_now[k]:
                marks[k] = True


@njit(nogil=True, cache=True)
def string_graph(lows, alive, offsets, successors, node_pdfs, first, last):
    """The distinct strings of pdfs of the frames first .. last - 1 on whole paths: a deterministic acceptor
    in layers.

    Returns int64 arrays (layers (last - first + 2), sources, targets, pdfs), arcs sorted by source. The
    states of layer t, those after t frames, are layers[t] .. layers[t + 1] - 1; the states of the last layer
    are final.
    """
    width = alive.shape[1]
    layers = np.zeros(last - first + 2, np.int64)
    layers[1] = 1
    sources = [np.int64(0) for _ in range(0)]
    targets = [np.int64(0) for _ in range(0)]
    pdfs = [np.int64(0) for _ in range(0)]
    sets = [np.zeros(0, np.int64)]
    marks = np.zeros(width, np.bool_)
    for t in range(first, last):
        layer = t - first
        new_sets = [np.zeros(0, np.int64) for _ in range(0)]
        for number in range(len(sets)):
            if t == first:
                marks[:] = alive[t]
            else:
                _reached(sets[number], lows[t], alive[t], offsets, successors, marks)
            for k in range(width):
                if marks[k]:
                    pdf = node_pdfs[lows[t] + k]
                    members = np.array(
                        [lows[t] + m for m in range(k, width) if marks[m] and node_pdfs[lows[t] + m] == pdf]
                    )
                    marks[members - lows[t]] = False
                    sources.append(layers[layer] + number)
                    targets.append(layers[layer + 1] + _find_or_add(new_sets, members))
                    pdfs.append(np.int64(pdf))
        layers[layer + 2] = layers[layer + 1] + len(new_sets)
        sets = new_sets
    return layers, np.array(sources), np.array(targets), np.array(pdfs)


@njit(nogil=True, cache=True)
def compose(layers, sources, targets, pdfs, slots, graph):
    """The denominator's paths over the strings of a `string_graph`: arcs (sources, targets, slots,
    log-probs), (first final state, states).

    graph  `GraphEntries`

    State 0 is the start. An arc has the slot of the string graph's arc. States are ordered in time; some are
    dead ends.
    """
    num_layers = len(layers) - 1
    widest = 0
    for t in range(num_layers):
        widest = max(widest, layers[t + 1] - layers[t])
    number_of = np.full((widest, graph.num_states), -1, np.int64)
    arc_begin = np.searchsorted(sources, np.arange(layers[-1] + 1))
    out_sources, out_targets = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)]
    out_slots, log_probs = [np.int64(0) for _ in range(0)], [0.0 for _ in range(0)]
    string_states, graph_states = [np.int64(0)], [np.int64(-1)]
    begin, end = 0, 1
    for t in range(num_layers - 1):
        for state in range(begin, end):
            string_state, graph_state = string_states[state], graph_states[state]
            for a in range(arc_begin[string_state], arc_begin[string_state + 1]):
                pdf, row = pdfs[a], targets[a] - layers[t + 1]
                if graph_state < 0:
                    low, high = graph.pdf_offsets[pdf], graph.pdf_offsets[pdf + 1]
                else:
                    low, high = graph.source_offsets[graph_state], graph.source_offsets[graph_state + 1]
                for i in range(low, high):
                    entry = graph.entries_of_pdf[i] if graph_state < 0 else graph.entries_of_source[i]
                    weight = graph.log_flow[i] if graph_state < 0 else graph.log_probs[i]
                    if graph.pdfs[entry] != pdf or weight == -np.inf:
                        continue
                    to = graph.targets[entry]
                    if number_of[row, to] < 0:
                        number_of[row, to] = len(string_states)
                        string_states.append(targets[a])
                        graph_states.append(np.int64(to))
                    out_sources.append(np.int64(state))
                    out_targets.append(number_of[row, to])
                    out_slots.append(np.int64(slots[a]))
                    log_probs.append(weight)
        begin, end = end, len(string_states)
        for state in range(begin, end):
            number_of[string_states[state] - layers[t + 1], graph_states[state]] = -1
    return np.array(out_sources), np.array(out_targets), np.array(out_slots), np.array(log_probs), begin, end
