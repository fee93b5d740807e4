"""Lattices whose arcs are phones: each arc has the transition-ids, and so the frames, of exactly one phone (Kaldi's lattice-align-phones).

In *reordered* alignments (Kaldi's default, and ours) a state's self-loops follow its forward transition, so that a phone is over when,
after a transition to its final state and its self-loops, another transition comes; otherwise it is over with the transition to its final
state. Either way two phones meet at an arc of the expanded lattice that begins a phone: these arcs become the states of the result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from pyasr.decode.compact import CompactLattice, compact_from_arcs, to_lattice
from pyasr.decode.token_passing import grown
from pyasr.hmm.transitions import TransitionModel

_ARC = np.dtype([("source", "i4"), ("target", "i4"), ("word", "i4"), ("graph", "f8"), ("acoustic", "f8"), ("end", "i8")], align=True)
_FRAME = np.dtype([("state", "i4"), ("arc", "i4"), ("num_tids", "i4"), ("num_words", "i4"), ("graph", "f8"), ("acoustic", "f8"),
                   ("over", "i4")], align=True)


def align_phones(lattice: CompactLattice, trans: TransitionModel, reordered: bool = True) -> CompactLattice:
    """The same paths, each arc one phone. A word stands on the phone in which it was met, or on the one before if it came with a phone's
    first frame; further words there follow on arcs without transition-ids. The last phone may be broken off.

    lattice  deterministic (`pyasr.decode.determinize`): every alignment in it is followed by itself
    """
    if lattice.empty:
        return lattice
    raw = to_lattice(lattice)
    arcs, num_arcs, tids = _phone_arcs(raw.arc_offsets, raw.targets, raw.ilabels, raw.olabels, raw.graph_costs, raw.acoustic_costs,
                                       raw.final_graph, raw.final_acoustic, trans.is_self_loop, trans.is_final, reordered)
    arcs = arcs[:num_arcs]
    start, end = raw.num_arcs, raw.num_arcs + 1
    num_states = int(max(arcs["source"].max(initial=end), arcs["target"].max(initial=end))) + 1
    finals = np.where(np.arange(num_states) == end, 0.0, np.inf)
    strings, no_strings = (np.append(0, arcs["end"]), tids), (np.zeros(num_states + 1, np.int64), np.empty(0, np.int32))
    return replace(compact_from_arcs(start, arcs["source"], arcs["target"], arcs["word"], arcs["graph"], arcs["acoustic"], strings,
                                     finals, finals, no_strings), reached_final=lattice.reached_final, stats=lattice.stats)


def phone_lattice(lattice: CompactLattice, trans: TransitionModel, reordered: bool = True) -> CompactLattice:
    """The phone-aligned lattice with phones in place of words (Kaldi's lattice-to-phone-lattice)."""
    aligned = align_phones(lattice, trans, reordered)
    has_phone = aligned.lengths > 0
    phones = np.zeros(aligned.num_arcs, np.int32)
    phones[has_phone] = trans.tid2phone[aligned.tids[aligned.string_offsets[:-1][has_phone]]]
    return replace(aligned, words=phones)


@njit(nogil=True, cache=True)
def _phone_arcs(offsets, targets, tids, words, graph, acoustic, final_graph, final_acoustic, is_loop, is_final, reordered):
    """(arcs between phone-beginning arcs of a lattice, their number, their transition-ids one after the other).

    State a < len(targets) of the result is the lattice's arc a; len(targets) is the start, the next the end.
    """
    num_arcs, num_states = len(targets), len(final_graph)
    end, num_numbers = num_arcs + 1, num_arcs + 2
    out, labels, num_out, num_labels = np.empty(1024, _ARC), np.empty(4096, np.int32), 0, 0
    stack, own_tids, own_words = np.empty(num_states + 1, _FRAME), np.empty(num_states + 1, np.int32), np.empty(num_states + 1, np.int32)
    todo, seen, num_todo = np.empty(num_arcs + 1, np.int32), np.zeros(num_arcs, np.bool_), 1
    todo[0] = num_arcs
    while num_todo:
        num_todo -= 1
        begin = todo[num_todo]
        _enter(stack, own_tids, begin, offsets, targets, tids, graph, acoustic, is_loop, is_final, reordered)
        depth = 0
        while depth >= 0:
            here = stack[depth]
            state, num_tids, num_words, target = here.state, here.num_tids, here.num_words, -1
            if here.arc < offsets[state]:
                here.arc = offsets[state]
                if final_graph[state] < np.inf:
                    target, g, c = end, here.graph + final_graph[state], here.acoustic + final_acoustic[state]
            elif here.arc == offsets[state + 1]:
                depth -= 1
            else:
                a = here.arc
                here.arc += 1
                if words[a]:
                    own_words[num_words] = words[a]
                    num_words += 1
                if num_tids and tids[a] and here.over and not (reordered and is_loop[tids[a]]):
                    target, g, c = a, here.graph, here.acoustic
                    if not seen[a]:
                        seen[a] = True
                        todo[num_todo] = a
                        num_todo += 1
                else:
                    depth += 1
                    _step(stack, own_tids, depth, a, num_words, offsets, targets, tids, graph, acoustic, is_loop, is_final, reordered)
            if target >= 0:
                out, labels = grown(out, num_out, max(num_words, 1)), grown(labels, num_labels, num_tids)
                labels[num_labels : num_labels + num_tids] = own_tids[:num_tids]
                num_labels += num_tids
                num_numbers = _write(out, num_out, num_labels, begin, target, own_words[:num_words], num_numbers, g, c)
                num_out += max(num_words, 1)
    return out, num_out, labels[:num_labels].copy()


@njit(nogil=True, cache=True)
def _over(tid, before, is_loop, is_final, reordered):
    """Whether a phone may be over after a transition-id, given whether it could before."""
    return before if tid == 0 or (reordered and is_loop[tid]) else is_final[tid]


@njit(nogil=True, cache=True)
def _enter(stack, own_tids, begin, offsets, targets, tids, graph, acoustic, is_loop, is_final, reordered):
    """The stack's first frame: after the arc `begin`, or at the start of the lattice if there is none."""
    at_start, first = begin == len(targets), stack[0]
    first.state = 0 if at_start else targets[begin]
    first.arc, first.num_words, first.num_tids = offsets[first.state] - 1, 0, 0 if at_start else 1
    first.graph, first.acoustic = (0.0, 0.0) if at_start else (graph[begin], acoustic[begin])
    first.over = False if at_start else _over(tids[begin], False, is_loop, is_final, reordered)
    if not at_start:
        own_tids[0] = tids[begin]


@njit(nogil=True, cache=True)
def _step(stack, own_tids, depth, a, num_words, offsets, targets, tids, graph, acoustic, is_loop, is_final, reordered):
    """The stack's frame at `depth`: that before it and then arc `a`."""
    before, here = stack[depth - 1], stack[depth]
    here.state, here.num_words, here.num_tids = targets[a], num_words, before.num_tids
    here.arc = offsets[here.state] - 1
    here.graph, here.acoustic = before.graph + graph[a], before.acoustic + acoustic[a]
    here.over = _over(tids[a], before.over, is_loop, is_final, reordered)
    if tids[a]:
        own_tids[here.num_tids] = tids[a]
        here.num_tids += 1


@njit(nogil=True, cache=True)
def _write(out, k, end, source, target, words, num_numbers, graph, acoustic):
    """Write an arc with its first word, and one without transition-ids for each further word. Returns the states numbered so far."""
    for i in range(max(len(words), 1)):
        last = i + 1 >= len(words)
        goal = target if last else num_numbers
        num_numbers += 0 if last else 1
        out[k + i].source, out[k + i].target, out[k + i].end = source, goal, end
        out[k + i].word = words[i] if len(words) else 0
        out[k + i].graph, out[k + i].acoustic = (graph, acoustic) if i == 0 else (0.0, 0.0)
        source = goal
    return num_numbers
