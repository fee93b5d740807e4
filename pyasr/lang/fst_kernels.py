"""Compiled loops over the arcs of a transducer; `fst_ops` is their interface."""

from __future__ import annotations

import numpy as np

from pyasr.base.kernels import njit

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
    """float64 (num_states): log of the summed probabilities of the arcs and the final cost of a state; -inf if it has none."""
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
    """log v of P v = lambda v by damped power iteration, until log (P v)(s) / v(s) differs by at most `tolerance` between states."""
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


@njit(cache=True, nogil=True)
def remove_epsilons_local(start, arc_offsets, sources, ilabels, olabels, weights, nextstates, finals):
    """Change the arc arrays and `finals` in place. Returns `sources` with -1 for deleted arcs.

    `num_in` counts the arcs into a state (one more for the start), `num_out` its outgoing arcs and its final cost. For an arc into state t:
    if t has no other incoming arc, the mergeable arcs out of t move up; if t has only one way out, the arc takes it.
    """
    first, following = _first_arcs(arc_offsets, len(ilabels))
    num_in = np.zeros(len(finals), np.int64)
    num_out = np.zeros(len(finals), np.int64)
    num_in[start] = 1
    for a in range(len(ilabels)):
        num_in[nextstates[a]] += 1
        num_out[sources[a]] += 1
    num_out += finals < np.inf
    for state in range(len(finals)):
        a = first[state]
        while a >= 0:
            for _ in range(_MAX_HOPS):  # in a cycle of states with one way out, an arc would be redirected forever
                if not _merge_arc(a, state, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals):
                    break
            a = following[a]
    return sources


@njit(cache=True, nogil=True)
def _merge_arc(a, state, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals):
    """Try both rules on arc `a` out of `state`. Returns whether a rule may apply to the arc again."""
    to = nextstates[a]
    if sources[a] < 0 or to == state:
        return False
    if num_in[to] == 1 and num_out[to] > 1:
        _pull_up(a, state, to, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals)
        return sources[a] >= 0 and num_out[to] == 1
    if num_out[to] == 1:
        _take_only_way(a, state, to, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals)
        return sources[a] >= 0 and nextstates[a] != to
    return False


@njit(cache=True, nogil=True)
def _pull_up(a, state, to, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals):
    """Arc `a` is the only one into `to`: merge it with each arc out of `to` if at most one label per side remains."""
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
        _move_cost(a, to, kept - _log_add_costs(removed, kept), first, following, weights, finals)


@njit(cache=True, nogil=True)
def _move_cost(a, to, cost, first, following, weights, finals):
    """Add `cost` to the arc and subtract it from all ways out of its next state."""
    weights[a] += cost
    b = first[to]
    while b >= 0:
        weights[b] -= cost
        b = following[b]
    if finals[to] < np.inf:
        finals[to] -= cost


@njit(cache=True, nogil=True)
def _merge_final(state, cost, num_out, finals):
    if finals[state] == np.inf:
        num_out[state] += 1
    finals[state] = min(finals[state], cost)


@njit(cache=True, nogil=True)
def _take_only_way(a, state, to, first, following, num_in, num_out, sources, ilabels, olabels, weights, nextstates, finals):
    """State `to` has only one way out: redirect arc `a` along it, and delete it if no other arc leads to `to`."""
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
