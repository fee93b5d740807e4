"""Compiled loops over the arcs of a transducer; `fst_ops` is their interface."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit

_MAX_HOPS = 100


@njit(cache=True, nogil=True)
def reachable(start, arc_offsets, nextstates):
    """bool (num_states): whether a path from `start` exists."""
    seen = np.zeros(len(arc_offsets) - 1, np.bool_)
    stack = np.empty(len(seen), np.int64)
    stack[0], size = start, 1
    seen[start] = True
    while size:
        size -= 1
        state = stack[size]
        for a in range(arc_offsets[state], arc_offsets[state + 1]):
            to = nextstates[a]
            if not seen[to]:
                seen[to] = True
                stack[size] = to
                size += 1
    return seen


@njit(cache=True, nogil=True)
def reachable_with(start, arc_offsets, nextstates, labels, wanted):
    """States reachable from `start` by arcs with selected labels, in the order of discovery: int64.

    wanted  bool, by label; labels beyond its end are not selected
    """
    seen = np.zeros(len(arc_offsets) - 1, np.bool_)
    seen[start] = True
    found = [np.int64(start)]
    at = 0
    while at < len(found):
        state = found[at]
        at += 1
        for a in range(arc_offsets[state], arc_offsets[state + 1]):
            if labels[a] < len(wanted) and wanted[labels[a]] and not seen[nextstates[a]]:
                seen[nextstates[a]] = True
                found.append(np.int64(nextstates[a]))
    return np.array(found)


@njit(cache=True, nogil=True)
def coreachable(sources, nextstates, finals):
    """bool (num_states): whether a path to a final state exists."""
    num_states = len(finals)
    offsets = np.zeros(num_states + 1, np.int64)
    for to in nextstates:
        offsets[to + 1] += 1
    offsets = np.cumsum(offsets)
    fill = offsets[:-1].copy()
    into = np.empty(len(nextstates), np.int64)
    for a in range(len(nextstates)):
        into[fill[nextstates[a]]] = sources[a]
        fill[nextstates[a]] += 1
    seen = finals < np.inf
    stack = np.empty(num_states, np.int64)
    size = 0
    for state in np.flatnonzero(seen):
        stack[size] = state
        size += 1
    while size:
        size -= 1
        state = stack[size]
        for i in range(offsets[state], offsets[state + 1]):
            if not seen[into[i]]:
                seen[into[i]] = True
                stack[size] = into[i]
                size += 1
    return seen


@njit(cache=True, nogil=True)
def log_sums(arc_offsets, weights, finals):
    """float64 (num_states): log of the summed probabilities of the arcs and the final cost of a state; -inf
    if it has none."""
    sums = np.empty(len(finals))
    for state in range(len(finals)):
        least = finals[state]
        for a in range(arc_offsets[state], arc_offsets[state + 1]):
            least = min(least, weights[a])
        if least == np.inf:
            sums[state] = -np.inf
            continue
        total = np.exp(np.float64(least - finals[state]))
        for a in range(arc_offsets[state], arc_offsets[state + 1]):
            total += np.exp(np.float64(least - weights[a]))
        sums[state] = np.log(total) - least
    return sums


@njit(cache=True, nogil=True)
def principal_log_eigenvector(start, arc_offsets, nextstates, weights, finals, max_iterations, tolerance):
    """log v of P v = lambda v by damped power iteration, until log (P v)(s) / v(s) differs by at most
    `tolerance` between states."""
    num_states = len(finals)
    arc_probs = np.exp(-weights.astype(np.float64))
    final_probs = np.exp(-finals.astype(np.float64))
    v = np.ones(num_states)
    new = np.empty(num_states)
    for _ in range(max_iterations):
        least, greatest = np.inf, 0.0
        for state in range(num_states):
            total = final_probs[state] * v[start]
            for a in range(arc_offsets[state], arc_offsets[state + 1]):
                total += arc_probs[a] * v[nextstates[a]]
            new[state] = total
            least = min(least, total / v[state])
            greatest = max(greatest, total / v[state])
        scale = 1.0 / np.sqrt(least * greatest)
        for state in range(num_states):
            v[state] = 0.1 * v[state] + 0.9 * scale * new[state]
        v /= v[start]
        if greatest <= least * (1.0 + tolerance):
            break
    return np.log(v)


@njit(cache=True, nogil=True)
def _log_add_costs(a, b):
    """-log(exp(-a) + exp(-b))."""
    if a > b:
        a, b = b, a
    if b == np.inf:
        return a
    return a - np.log1p(np.exp(a - b))


@njit(cache=True, nogil=True)
def _first_arcs(arc_offsets, num_arcs):
    """Linked lists of arcs, in order: (first arc of each state, next arc of each arc), -1 ends a list."""
    first = np.full(len(arc_offsets) - 1, -1, np.int64)
    following = np.full(num_arcs, -1, np.int64)
    for state in range(len(first)):
        begin, end = arc_offsets[state], arc_offsets[state + 1]
        if end > begin:
            first[state] = begin
            for a in range(begin, end - 1):
                following[a] = a + 1
    return first, following


class _LinkedArcs(NamedTuple):
    """The arcs of a transducer, linked lists of them (`_first_arcs`), and for each state the arcs that lead
    to it, and ways out of it."""

    sources: np.ndarray
    ilabels: np.ndarray
    olabels: np.ndarray
    weights: np.ndarray
    nextstates: np.ndarray
    finals: np.ndarray
    first: np.ndarray
    following: np.ndarray
    num_in: np.ndarray
    num_out: np.ndarray


@njit(cache=True, nogil=True)
def remove_epsilons_local(start, arc_offsets, sources, ilabels, olabels, weights, nextstates, finals):
    """Change the arc arrays and `finals` in place. Returns `sources` with -1 for deleted arcs.

    `num_in` counts the arcs into a state (one more for the start), `num_out` its outgoing arcs and its final
    cost. For an arc into state t: if t has no other incoming arc, the mergeable arcs out of t move up; if t
    has only one way out, the arc takes it.
    """
    first, following = _first_arcs(arc_offsets, len(ilabels))
    num_in = np.zeros(len(finals), np.int64)
    num_out = np.zeros(len(finals), np.int64)
    arcs = _LinkedArcs(
        sources, ilabels, olabels, weights, nextstates, finals, first, following, num_in, num_out
    )
    num_in[start] = 1
    for a in range(len(ilabels)):
        num_in[nextstates[a]] += 1
        num_out[sources[a]] += 1
    num_out += finals < np.inf
    for state in range(len(finals)):
        a = first[state]
        while a >= 0:
            for _ in range(_MAX_HOPS):  # a cycle of states with one way out would lead an arc round for ever
                if not _merge_arc(a, state, arcs):
                    break
            a = following[a]
    return sources


@njit(cache=True, nogil=True)
def _merge_arc(a, state, arcs):
    """Try both rules on arc `a` out of `state`. Returns whether a rule may apply to the arc again."""
    to = arcs.nextstates[a]
    if arcs.sources[a] < 0 or to == state:
        return False
    if arcs.num_in[to] == 1 and arcs.num_out[to] > 1:
        _pull_up(a, state, to, arcs)
        return arcs.sources[a] >= 0 and arcs.num_out[to] == 1
    if arcs.num_out[to] == 1:
        _take_only_way(a, state, to, arcs)
        return arcs.sources[a] >= 0 and arcs.nextstates[a] != to
    return False


@njit(cache=True, nogil=True)
def _pull_up(a, state, to, arcs):
    """Arc `a` is the only one into `to`: merge it with each arc out of `to` if at most one label per side
    remains."""
    sources = arcs.sources
    ilabels = arcs.ilabels
    olabels = arcs.olabels
    weights = arcs.weights
    finals = arcs.finals
    first, following, num_in, num_out = arcs.first, arcs.following, arcs.num_in, arcs.num_out
    removed = kept = np.inf
    kept_first = kept_last = -1
    b = first[to]
    while b >= 0:
        after = following[b]
        if sources[b] >= 0 and not ((ilabels[a] and ilabels[b]) or (olabels[a] and olabels[b])):
            removed = _log_add_costs(removed, weights[b])
            ilabels[b] += ilabels[a]
            olabels[b] += olabels[a]
            weights[b] += weights[a]
            sources[b] = state
            following[b] = following[a]
            following[a] = b
            num_out[to] -= 1
            num_out[state] += 1
        elif sources[b] >= 0:
            kept = _log_add_costs(kept, weights[b])
            if kept_last < 0:
                kept_first = b
            else:
                following[kept_last] = b
            kept_last = b
        b = after
    first[to] = kept_first
    if kept_last >= 0:
        following[kept_last] = -1
    if finals[to] < np.inf:
        if ilabels[a] == 0 and olabels[a] == 0:
            removed = _log_add_costs(removed, finals[to])
            _merge_final(state, weights[a] + finals[to], num_out, finals)
            finals[to] = np.inf
            num_out[to] -= 1
        else:
            kept = _log_add_costs(kept, finals[to])
    if num_out[to] == 0:
        sources[a] = -1
        num_in[to] -= 1
        num_out[state] -= 1
    elif removed < np.inf:
        _move_cost(a, to, kept - _log_add_costs(removed, kept), arcs)


@njit(cache=True, nogil=True)
def _move_cost(a, to, cost, arcs):
    """Add `cost` to the arc and subtract it from all ways out of its next state."""
    arcs.weights[a] += cost
    b = arcs.first[to]
    while b >= 0:
        arcs.weights[b] -= cost
        b = arcs.following[b]
    if arcs.finals[to] < np.inf:
        arcs.finals[to] -= cost


@njit(cache=True, nogil=True)
def _merge_final(state, cost, num_out, finals):
    if finals[state] == np.inf:
        num_out[state] += 1
    finals[state] = min(finals[state], cost)


@njit(cache=True, nogil=True)
def _take_only_way(a, state, to, arcs):
    """State `to` has only one way out: redirect arc `a` along it, and delete it if no other arc leads to
    `to`."""
    sources = arcs.sources
    ilabels = arcs.ilabels
    olabels = arcs.olabels
    weights = arcs.weights
    finals = arcs.finals
    first = arcs.first
    following = arcs.following
    num_in = arcs.num_in
    num_out = arcs.num_out
    nextstates = arcs.nextstates
    if finals[to] < np.inf:
        if ilabels[a] or olabels[a]:
            return
        _merge_final(state, weights[a] + finals[to], num_out, finals)
        sources[a] = -1
        num_out[state] -= 1
    else:
        b = first[to]
        while sources[b] < 0:
            b = following[b]
        if nextstates[b] == to or (ilabels[a] and ilabels[b]) or (olabels[a] and olabels[b]):
            return
        ilabels[a] += ilabels[b]
        olabels[a] += olabels[b]
        weights[a] += weights[b]
        nextstates[a] = nextstates[b]
        num_in[nextstates[b]] += 1
        if num_in[to] == 1:
            sources[b] = -1
            num_in[nextstates[b]] -= 1
            num_out[to] = 0
    num_in[to] -= 1
