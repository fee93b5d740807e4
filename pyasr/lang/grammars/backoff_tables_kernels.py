"""Compiled loops of `pyasr.lang.grammars.backoff_tables`, which enter the n-grams of an ARPA file into the
tables of a back-off model.

States are histories: 0 is the empty one, then those of one word, of two words, ..., each in the order of the
file. The arcs of an order begin in states of the order below. They are sorted by state and word, so a history
is found by following the arcs of its words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.array_copies import copy_into
from pyasr.base.compiled.kernels import njit

_UNKNOWN, _ORPHAN = -2, -1
_MAX_STEPS = 1024  # histories have fewer words


class Growing(NamedTuple):
    """The tables during construction.

    bos, eos       ids of the sentence begin and the sentence end, which no arc has
    of_word        int32 (largest id + 1): state of the history of one word, -1 if there is none
    offsets        int64 (num_states + 2): the arcs of state s are offsets[s]:offsets[s + 1]; while arcs are
                   counted, offsets[s + 2] is their number; while they are entered, offsets[s + 1] is the next
                   free place
    words, targets int32 (num_arcs)
    finals         float32 (num_states): cost of the sentence end, infinite if it is not listed
    backoffs       int32 (num_states), backoff_costs float64 (num_states)
    bypassed       bool (num_states): states without arcs and final cost; arcs to them lead to their back-off
                   states instead
    """

    bos: int
    eos: int
    of_word: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    targets: np.ndarray
    finals: np.ndarray
    backoffs: np.ndarray
    backoff_costs: np.ndarray
    bypassed: np.ndarray


@njit(nogil=True, cache=True)
def arc_of(lm, state, word):
    """The arc of `word` from a state, -1 if there is none."""
    low, end = lm.offsets[state], lm.offsets[state + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if lm.words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and lm.words[low] == word else -1


@njit(nogil=True, cache=True)
def _child(lm, state, word):
    """State after a history and one more word, -1 if it is not listed."""
    arc = arc_of(lm, state, word)
    return lm.targets[arc] if arc >= 0 else np.int32(-1)


@njit(nogil=True, cache=True)
def _find(lm, ids, row, first, last):
    """State of the history ids[row, first:last], -1 if it is not listed."""
    if first == last:
        return np.int32(0)
    state = lm.of_word[ids[row, first]]
    for k in range(first + 1, last):
        if state < 0:
            break
        state = _child(lm, state, ids[row, k])
    return state


@njit(nogil=True, cache=True)
def _source(lm, ids, row):
    """Source state of the arc of an n-gram; _UNKNOWN for an n-gram with a word without an id, or with <s> or
    </s> inside, which no text reaches; _ORPHAN for one whose history is not listed."""
    n = ids.shape[1]
    for k in range(n):
        if ids[row, k] < 0 or (k > 0 and ids[row, k] == lm.bos) or (k < n - 1 and ids[row, k] == lm.eos):
            return np.int32(_UNKNOWN)
    return _find(lm, ids, row, 0, n - 1)


@njit(nogil=True, cache=True)
def sources(lm, ids):
    """Source states of the arcs of n-grams, negative for skipped n-grams: int32 (num)."""
    found = np.empty(len(ids), np.int32)
    for row in range(len(ids)):
        found[row] = _source(lm, ids, row)
    return found


@njit(nogil=True, cache=True)
def count(lm, ids, costs):
    """Count the arcs of n-grams, and store the costs of sentence ends. Returns (number of histories among
    them, row of a repeated sentence end or -1)."""
    num_histories, n = 0, ids.shape[1]
    for row in range(len(ids)):
        state = _source(lm, ids, row)
        if state < 0:
            continue
        if ids[row, n - 1] == lm.eos:
            if lm.finals[state] < np.inf:
                return num_histories, row
            lm.finals[state] = costs[row]
            continue
        num_histories += 1
        if ids[row, n - 1] != lm.bos:
            lm.offsets[state + 2] += 1
    return num_histories, -1


@njit(nogil=True, cache=True)
def begin_arcs(lm, first, last):
    """Replace the counts of the states first:last by the places of their first arcs; offsets[first] is
    known."""
    lm.offsets[first + 1] = lm.offsets[first]
    for state in range(first, last):
        lm.offsets[state + 2] += lm.offsets[state + 1]


@njit(nogil=True, cache=True)
def mark_bypassed(lm, first, last, start):
    """Mark the states first:last without arcs and final cost, by the places of their arcs, except the empty
    history and `start`."""
    for state in range(first, last):
        has_arcs = lm.offsets[state + 2] > lm.offsets[state + 1]
        lm.bypassed[state] = not has_arcs and lm.finals[state] == np.inf and state != 0 and state != start


@njit(nogil=True, cache=True)
def fill_histories(lm, ids, costs, backoff_costs, arc_costs, first_arc, state):
    """Enter the arcs of n-grams that are also histories, the first with number `state`. Returns (next state,
    state of <s> or -1).

    arc_costs  float64: costs of the arcs from `first_arc` on
    """
    n, start = ids.shape[1], -1
    for row in range(len(ids)):
        source, word = _source(lm, ids, row), ids[row, n - 1]
        if source < 0 or word == lm.eos:
            continue
        lm.backoffs[state], lm.backoff_costs[state] = _longest_suffix(lm, ids, row), backoff_costs[row]
        if n == 1:
            lm.of_word[word] = state
        if word == lm.bos:
            start = state
        else:
            arc_costs[_enter(lm, source, word, state) - first_arc] = costs[row]
        state += 1
    return state, start


@njit(nogil=True, cache=True)
def fill_highest(lm, ids, costs, arc_costs, first_arc):
    """Enter the arcs of n-grams of the highest order, which lead to the longest listed history.

    arc_costs  float32: costs of the arcs from `first_arc` on, including those of bypassed states
    """
    n, steps = ids.shape[1], np.empty(_MAX_STEPS)
    for row in range(len(ids)):
        source, word = _source(lm, ids, row), ids[row, n - 1]
        if source >= 0 and word != lm.eos and word != lm.bos:
            target = _longest_suffix(lm, ids, row)
            _, extra = _settled(lm, target, steps)
            arc_costs[_enter(lm, source, word, target) - first_arc] = costs[row] + extra


@njit(nogil=True, cache=True)
def _longest_suffix(lm, ids, row):
    """State of the longest listed history that is a proper suffix of an n-gram."""
    n, state = ids.shape[1], np.int32(-1)
    first = 1
    while state < 0:
        state = _find(lm, ids, row, first, n)
        first += 1
    return state


@njit(nogil=True, cache=True)
def _enter(lm, source, word, target):
    """Write an arc at the next free place of its state. Returns the place."""
    at = lm.offsets[source + 1]
    lm.offsets[source + 1] += 1
    lm.words[at], lm.targets[at] = word, target
    return at


@njit(nogil=True, cache=True)
def _settled(lm, state, steps):
    """(final target of an arc to `state`, cost of the bypassed states on the way).

    The costs are added in pairs, pairs of pairs, and so on, as in `pyasr.lang.grammars.grammar`, so that the
    result is bit-identical.
    """
    num = 0
    while lm.bypassed[state]:
        steps[num] = lm.backoff_costs[state]
        state, num = lm.backoffs[state], num + 1
    while num > 1:
        if num % 2:
            steps[num] = 0.0
        num = (num + 1) // 2
        for k in range(num):
            steps[k] = steps[2 * k] + steps[2 * k + 1]
    return state, steps[0] if num else 0.0


@njit(nogil=True, cache=True)
def sort_arcs(lm, first, last, costs, first_arc):
    """Sort the arcs of the states first:last by word; `costs` begins with the cost of `first_arc`. Returns
    (-1, -1), or a state and a word that has two arcs there."""
    for state in range(first, last):
        begin, end = lm.offsets[state], lm.offsets[state + 1]
        rising = True
        for a in range(begin + 1, end):
            rising &= lm.words[a - 1] < lm.words[a]
        if rising:
            continue
        order = np.argsort(lm.words[begin:end])
        copy_into(lm.words, begin, lm.words[begin:end][order])
        copy_into(lm.targets, begin, lm.targets[begin:end][order])
        copy_into(costs, begin - first_arc, costs[begin - first_arc : end - first_arc][order])
        for a in range(begin + 1, end):
            if lm.words[a - 1] == lm.words[a]:
                return state, lm.words[a]
    return -1, -1


@njit(nogil=True, cache=True)
def settle_costs(lm, first_arc, arc_costs, costs):
    """Write the costs of the arcs from `first_arc` on, including those of bypassed states, to `costs`,
    float32 (num_arcs)."""
    steps = np.empty(_MAX_STEPS)
    for k in range(len(arc_costs)):
        _, extra = _settled(lm, lm.targets[first_arc + k], steps)
        costs[first_arc + k] = arc_costs[k] + extra


@njit(nogil=True, cache=True)
def close(lm, num_states, num_arcs, backoff_costs):
    """Redirect arcs past the bypassed states, and remove these from all tables. Returns (number of remaining
    states, their new numbers by the old ones).

    backoff_costs  float32 (num_states), output
    """
    numbers, steps, kept = np.empty(num_states, np.int32), np.empty(_MAX_STEPS), 0
    for state in range(num_states):
        numbers[state] = kept
        kept += not lm.bypassed[state]
    for a in range(num_arcs):
        target, _ = _settled(lm, lm.targets[a], steps)
        lm.targets[a] = numbers[target]
    for state in range(1, num_states):
        if not lm.bypassed[state]:
            target, extra = _settled(lm, lm.backoffs[state], steps)
            lm.backoffs[state] = numbers[target]
            backoff_costs[numbers[state]] = lm.backoff_costs[state] + extra
    for state in range(num_states):
        if not lm.bypassed[state]:
            lm.finals[numbers[state]] = lm.finals[state]
            lm.offsets[numbers[state]] = lm.offsets[state]
            lm.backoffs[numbers[state]] = lm.backoffs[state]
    lm.offsets[kept] = num_arcs
    lm.backoffs[0], backoff_costs[0] = -1, 0.0
    return kept, numbers
