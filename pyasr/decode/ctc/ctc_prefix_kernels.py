"""Kernels of the prefix beam search; docs/networks/ctc.md has the equations, and
`pyasr.decode.ctc.ctc_prefix` calls them.

Prefixes are nodes of a tree; node 0 is the empty prefix. Nodes stay in the tree when they leave the beam, so
each prefix has exactly one node. A node stores the values that depend only on its units:

* spelling             the trie node, in the language model's spellings, where the unfinished word ends
* num_words, lm_cost   number and cost of the finished words; closed_words, closed_cost: the same with the
                       unfinished word closed
* unknown_cost         cost of an unknown word after the finished words; closed_unknown_cost: after the closed
                       ones
* due_words, due_cost  number and cost of the words that count when prefixes are compared: the finished words,
                       and the unfinished word as soon as no word of the model begins with its letters

The beam stores node numbers and two log probabilities: of all alignments that end in a blank, and of those
that end in the last unit.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.search.token_passing import grown
from pyasr.lang.grammars.backoff_lm import strict_end, strict_word
from pyasr.lang.ngrams.arpa_kernels import find_key

NODE = np.dtype([("parent", "i4"), ("unit", "i4"), ("first_child", "i4"), ("sibling", "i4"), ("place", "i4"),
                 ("spelling", "i4"), ("history", "i4"), ("num_words", "i4"), ("lm_cost", "f8"),
                 ("closed_history", "i4"), ("closed_words", "i4"), ("closed_cost", "f8"),
                 ("num_letters", "i4"), ("due_words", "i4"), ("due_cost", "f8"), ("unknown_cost", "f8"),
                 ("closed_unknown_cost", "f8"), ("has_unknown", "i4")])  # fmt: skip

_NOWHERE = -1


class Spellings(NamedTuple):
    """Letters of the units, and a trie of the words of the language model.

    begins            bool (num_units): whether a unit begins a word
    offsets, letters  int64 (num_units + 1), int64: unit u has the letters letters[offsets[u]:offsets[u + 1]];
                      -1 for a letter in no word
    keys, targets     int64, sorted: node * num_letters + letter, and the node that it leads to; node 0 is the
                      root
    words             int64 (num_nodes): the word that ends at a node, else `unknown`
    unknown           the id of <unk>; 0 if the model has none
    unknown_unit      number of the unit <unk>, which adds no letters; a word without letters is `unknown`;
                      -1: no such unit
    letter_cost       cost of each letter of an unknown word
    """

    begins: np.ndarray
    offsets: np.ndarray
    letters: np.ndarray
    keys: np.ndarray
    targets: np.ndarray
    num_letters: int
    words: np.ndarray
    unknown: int
    unknown_unit: int
    letter_cost: float


class Beam(NamedTuple):
    """The nodes kept at a frame, with the log probabilities of alignments that end in a blank (blank) and in
    the last unit (label)."""

    active: np.ndarray
    blank: np.ndarray
    label: np.ndarray


class Weights(NamedTuple):
    """Limits and weights of the comparison of prefixes, from `PrefixOptions`."""

    beam: int
    unit_beam: float
    lm_weight: float
    bonus: float


@njit(nogil=True, cache=True)
def log_add(a, b):
    """ln(e^a + e^b)."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@njit(nogil=True, cache=True)
def _spelled(table, node, unit):
    """The trie node reached from `node` by the letters of a unit."""
    for i in range(table.offsets[unit], table.offsets[unit + 1]):
        if node == _NOWHERE or table.letters[i] < 0:
            return _NOWHERE
        at = find_key(table.keys, 0, len(table.keys), node * table.num_letters + table.letters[i])
        node = table.targets[at] if at >= 0 else _NOWHERE
    return node


@njit(nogil=True, cache=True)
def _due(above, unit, table):
    """(due_words, due_cost) of the child of the node `above` by `unit`."""
    begins = table.begins[unit]
    words, cost = (above.closed_words, above.closed_cost) if begins else (above.num_words, above.lm_cost)
    if _spelled(table, np.int64(0 if begins else above.spelling), unit) != _NOWHERE:
        return words, cost
    num_letters = table.offsets[unit + 1] - table.offsets[unit] + (0 if begins else above.num_letters)
    unknown_cost = above.closed_unknown_cost if begins else above.unknown_cost
    return words + 1, cost + (unknown_cost + table.letter_cost * num_letters)


@njit(nogil=True, cache=True)
def _fill(nodes, new, parent, unit, table, lm):
    """Fill in node `new` as the child of `parent` by `unit`."""
    one, above = nodes[new], nodes[parent]
    one.parent, one.unit, one.first_child, one.place = parent, unit, -1, -1
    one.sibling, above.first_child = above.first_child, new
    one.num_letters = table.offsets[unit + 1] - table.offsets[unit]
    if table.begins[unit]:
        one.history, one.num_words, one.lm_cost = above.closed_history, above.closed_words, above.closed_cost
        one.spelling = _spelled(table, np.int64(0), unit)
    else:
        one.history, one.num_words, one.lm_cost = above.history, above.num_words, above.lm_cost
        one.spelling = _spelled(table, np.int64(above.spelling), unit)
        one.num_letters += above.num_letters
    one.has_unknown = 1 if unit == table.unknown_unit or (above.has_unknown and not table.begins[unit]) else 0
    one.closed_history, one.closed_words, one.closed_cost = one.history, one.num_words, one.lm_cost
    if one.num_letters > 0 or one.has_unknown:
        word = table.words[one.spelling] if one.spelling >= 0 else table.unknown
        cost, one.closed_history = strict_word(lm, one.history, word)
        if word == table.unknown:
            cost += table.letter_cost * one.num_letters
        one.closed_words += 1
        one.closed_cost += cost
    one.unknown_cost = above.closed_unknown_cost if table.begins[unit] else above.unknown_cost
    one.closed_unknown_cost = strict_word(lm, one.closed_history, table.unknown)[0]
    one.due_words, one.due_cost = _due(above, unit, table)


@njit(nogil=True, cache=True)
def _child(nodes, used, parent, unit, table, lm):
    """(child of a prefix by a unit, number of nodes used); the child is created if it does not exist."""
    child = nodes[parent].first_child
    while child >= 0:
        if nodes[child].unit == unit:
            return child, used
        child = nodes[child].sibling
    _fill(nodes, used, parent, unit, table, lm)
    return used, used + 1


@njit(nogil=True, cache=True)
def _offer(heap, beam, score, number):
    """Add a candidate to the heap of the `beam` best; of equal candidates, the earlier ones are kept."""
    if score == -np.inf:
        return
    if len(heap) < beam:
        heappush(heap, (score, -number))
    elif (score, -number) > heap[0]:
        heapreplace(heap, (score, -number))


@njit(nogil=True, cache=True)
def _stay(nodes, kept, frame, taken):
    """The same prefixes with log probabilities one frame later; `taken` marks the extensions that lead to one
    of them."""
    active, blank, label = kept.active, kept.blank, kept.label
    new_blank, new_label = np.empty(len(active)), np.full(len(active), -np.inf)
    for j in range(len(active)):
        new_blank[j] = log_add(blank[j], label[j]) + frame[0]
        if active[j] == 0:
            continue
        node = nodes[active[j]]
        new_label[j] = label[j] + frame[node.unit]
        i = nodes[node.parent].place
        if i >= 0:
            before = blank[i] if nodes[node.parent].unit == node.unit else log_add(blank[i], label[i])
            new_label[j] = log_add(new_label[j], before + frame[node.unit])
            taken[i, node.unit] = True
    return Beam(active, new_blank, new_label)


@njit(nogil=True, cache=True)
def _select(nodes, kept, stayed, frame, extending, table, taken, weights):
    """The best candidates, (score, -number): number j for a prefix that stays, len(active) + i * num_units +
    u for prefix i and unit u.

    The due words of a child are computed only if the child could be kept with the due cost of its parent and
    the bonus of one more word.
    """
    active, blank, label = kept.active, kept.blank, kept.label
    beam, lm_weight, bonus = weights.beam, weights.lm_weight, weights.bonus
    heap = [(0.0, np.int64(0)) for _ in range(0)]
    num_active, num_units = len(active), len(frame)
    for j in range(num_active):
        node = nodes[active[j]]
        score = log_add(stayed.blank[j], stayed.label[j]) - lm_weight * node.due_cost + bonus * node.due_words
        _offer(heap, beam, score, np.int64(j))
    for i in range(num_active):
        node, total = nodes[active[i]], log_add(blank[i], label[i])
        due = bonus * node.due_words - lm_weight * node.due_cost
        closed = bonus * node.closed_words - lm_weight * node.closed_cost
        for u in extending:
            if not taken[i, u]:
                before = blank[i] if node.unit == u else total
                score = before + frame[u]
                if (
                    len(heap) < beam
                    or score + (closed if table.begins[u] else due) + max(bonus, 0.0) >= heap[0][0]
                ):
                    words, cost = _due(node, u, table)
                    _offer(
                        heap,
                        beam,
                        score + (bonus * words - lm_weight * cost),
                        np.int64(num_active + i * num_units + u),
                    )
    return heap


@njit(nogil=True, cache=True)
def _move(nodes, used, heap, kept, stayed, frame, table, lm):
    """(number of nodes used, beam one frame later with the best prefix last)."""
    active, blank, label = kept.active, kept.blank, kept.label
    num_units, size = np.int64(len(frame)), len(heap)
    new_active = np.empty(size, np.int64)
    new_blank = np.full(size, -np.inf)
    new_label = np.full(size, -np.inf)
    for k in range(size):
        number = -heappop(heap)[1]
        if number < len(active):
            new_active[k] = active[number]
            new_blank[k] = stayed.blank[number]
            new_label[k] = stayed.label[number]
            continue
        i, u = np.int64((number - len(active)) // num_units), np.int64((number - len(active)) % num_units)
        before = blank[i] if nodes[active[i]].unit == u else log_add(blank[i], label[i])
        new_active[k], used = _child(nodes, used, active[i], u, table, lm)
        new_label[k] = before + frame[u]
    for node in active:
        nodes[node].place = -1
    for k in range(size):
        nodes[new_active[k]].place = k
    return used, Beam(new_active, new_blank, new_label)


@njit(nogil=True, cache=True)
def _root(nodes, table, lm):
    root = nodes[0]
    root.parent, root.unit, root.first_child, root.sibling, root.place = -1, -1, -1, -1, 0
    root.spelling, root.history, root.closed_history = 0, lm.start, lm.start
    root.num_words, root.closed_words, root.due_words, root.num_letters, root.has_unknown = 0, 0, 0, 0, 0
    root.lm_cost, root.closed_cost, root.due_cost = 0.0, 0.0, 0.0
    root.unknown_cost = root.closed_unknown_cost = strict_word(lm, lm.start, table.unknown)[0]


@njit(nogil=True, cache=True)
def search(log_posteriors, table, lm, weights):
    """Prefixes of the last frame: (all units concatenated, end of each prefix, ln p, language model cost with
    the end of the sentence)."""
    nodes, used = np.empty(256, NODE), np.int64(1)
    _root(nodes, table, lm)
    kept = Beam(np.zeros(1, np.int64), np.zeros(1), np.full(1, -np.inf))
    for t in range(len(log_posteriors)):
        frame = log_posteriors[t].astype(np.float64)
        extending = 1 + np.flatnonzero(frame[1:] >= frame.max() - weights.unit_beam)
        taken = np.zeros((len(kept.active), len(frame)), np.bool_)
        stayed = _stay(nodes, kept, frame, taken)
        heap = _select(nodes, kept, stayed, frame, extending, table, taken, weights)
        nodes = grown(nodes, used, len(heap))
        used, kept = _move(nodes, used, heap, kept, stayed, frame, table, lm)
    return _results(nodes, kept, lm)


@njit(nogil=True, cache=True)
def _results(nodes, kept, lm):
    active = kept.active
    units, ends = [np.int64(0) for _ in range(0)], np.empty(len(active), np.int64)
    log_probs, lm_costs = np.empty(len(active)), np.empty(len(active))
    for k in range(len(active)):
        begin, node = len(units), active[k]
        log_probs[k] = log_add(kept.blank[k], kept.label[k])
        lm_costs[k] = nodes[node].closed_cost + strict_end(lm, nodes[node].closed_history)
        while node > 0:
            units.append(np.int64(nodes[node].unit))
            node = nodes[node].parent
        units[begin:] = units[begin:][::-1]
        ends[k] = len(units)
    return np.array(units), ends, log_probs, lm_costs
