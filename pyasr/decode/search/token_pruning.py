"""Kernels that remove tokens and links outside the lattice beam; `pyasr.decode.search.token_passing`
describes the pools.

The extra cost of a token is the cost of the best path through it minus that of the best path of all.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit

_INF = np.float32(np.inf)


@njit(nogil=True, cache=True)
def prune_segment(tokens, links, first, last, lattice_beam):
    """Visit links last-1 .. first backwards: lower the extra costs of their sources, mark links outside the
    lattice beam by source -1."""
    for k in range(last - 1, first - 1, -1):
        target = links[k].target
        extra = tokens[target].extra + (links[k].total - tokens[target].cost)
        if extra > lattice_beam:
            links[k].source = -1
        elif extra < tokens[links[k].source].extra:
            tokens[links[k].source].extra = max(extra, np.float32(0))


@njit(nogil=True, cache=True)
def prune_back(pools, frame, settled, delta, lattice_beam):
    """Compute extra costs of the tokens before `frame` from those of `frame`. Returns the first frame whose
    tokens may be removed.

    Stops at a frame up to `settled` (pruned before) in which no extra cost changed by more than `delta`.
    """
    tokens, links, token_begin, link_begin = pools.tokens, pools.links, pools.token_begin, pools.link_begin
    for t in range(frame - 1, -1, -1):
        begin, end = token_begin[t], token_begin[t + 1]
        before = np.empty(end - begin, np.float32)
        for i in range(begin, end):
            before[i - begin] = tokens[i].extra
            tokens[i].extra = _INF
        prune_segment(tokens, links, link_begin[2 * t], link_begin[2 * t + 2], lattice_beam)
        change = np.float32(0)
        for i in range(begin, end):
            if tokens[i].extra != before[i - begin]:
                change = max(change, abs(tokens[i].extra - before[i - begin]))
        if t <= settled and change <= delta:
            return t + 1
    return 0


@njit(nogil=True, cache=True)
def compact(pools, first, frame):
    """Remove tokens of frames first..frame outside the lattice beam, and marked links. Returns the numbers of
    tokens and links."""
    tokens, links, token_begin, link_begin = pools.tokens, pools.links, pools.token_begin, pools.link_begin
    count = token_begin[first]
    for i in range(token_begin[first], token_begin[frame + 1]):
        tokens[i].scratch = count
        count += tokens[i].extra < _INF
    base = token_begin[first]
    kept = link_begin[2 * max(first - 1, 0)]
    for segment in range(2 * max(first - 1, 0), 2 * frame + 1):
        begin, end = link_begin[segment], link_begin[segment + 1]
        link_begin[segment] = kept
        for k in range(begin, end):
            source, target = links[k].source, links[k].target
            if source >= 0:
                links[kept].source = tokens[source].scratch if source >= base else source
                links[kept].target = tokens[target].scratch if target >= base else target
                links[kept].arc = links[k].arc
                links[kept].total = links[k].total
                kept += 1
    link_begin[2 * frame + 1] = kept
    for t in range(first, frame + 1):
        begin, end = token_begin[t], token_begin[t + 1]
        token_begin[t] = base
        for i in range(begin, end):
            if tokens[i].extra < _INF:
                tokens[base].state = tokens[i].state
                tokens[base].cost = tokens[i].cost
                tokens[base].extra = tokens[i].extra
                base += 1
    token_begin[frame + 1] = base
    return base, kept


@njit(nogil=True, cache=True)
def final_extras(tokens, begin, end, finals, lattice_beam, complete):
    """Extra costs of the last frame's tokens from final costs. All final costs are 0 if no token is final or
    the search is not `complete`.

    Returns whether the graph's final costs were used.
    """
    best = _INF
    if complete:
        for i in range(begin, end):
            best = min(best, tokens[i].cost + finals[tokens[i].state])
    reached = best < _INF
    if not reached:
        for i in range(begin, end):
            best = min(best, tokens[i].cost)
    for i in range(begin, end):
        cost = tokens[i].cost
        if reached:
            cost += finals[tokens[i].state]
        extra = cost - best  # in the order of the minimum: exactly 0 for the best token
        tokens[i].extra = extra if extra <= lattice_beam else _INF
    return reached
