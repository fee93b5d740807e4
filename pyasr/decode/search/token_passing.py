"""Kernels of the lattice-generating beam search. docs/decoding/decoding.md derives them;
`pyasr.decode.search.beam_search` calls them.

A token is a graph state reached at a frame, with the lowest cost of reaching it. A link is an arc of the
graph between two tokens. All tokens are in one pool in the order of their frames. All links are in another
pool in the order of their segments: segment 2t contains the epsilon links inside frame t, segment 2t + 1 the
emitting links from frame t to t + 1, with the likelihoods of frame t. The sources of a segment's epsilon
links are in topological order, so that a backward pass over the pool visits each link after all links that
follow it on any path.

Costs of a frame's tokens are relative to a running offset, so that float32 is precise to about 1e-5 for
utterances of any length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.array_copies import copy_into
from pyasr.base.compiled.kernels import njit
from pyasr.decode.search.token_pruning import compact, final_extras, prune_back, prune_segment

ARC = np.dtype([("target", "i4"), ("weight", "f4"), ("pdf", "i4")])
TOKEN = np.dtype([("state", "i4"), ("cost", "f4"), ("extra", "f4"), ("scratch", "i4")])
LINK = np.dtype([("source", "i4"), ("target", "i4"), ("arc", "i4"), ("total", "f4")])

_INF = np.float32(np.inf)
_NUM_BINS = 256
_MAX_ROUNDS = 10000
_NO_EPSILON = np.int64(1) << 62
OK, NEGATIVE_CYCLE = 0, 1
# Elements of `Pools.place`: frames decoded; first token of the newest frame; tokens and links in use; the
# last frame at which links were pruned; tokens over all frames; peak number of links; OK or an error; whether
# no path of the graph continued
FRAME, BEGIN, NUM_TOKENS, NUM_LINKS, SETTLED, NUM_EXPANDED, PEAK_LINKS, STATUS, IS_DEAD, _PLACE_LEN = range(
    10
)


class GraphTables(NamedTuple):
    """The arrays of a `pyasr.decode.search.search_graph.Graph`, for the kernels."""

    arcs: np.ndarray
    offsets: np.ndarray
    levels: np.ndarray
    num_levels: int
    cyclic: bool


class Limits(NamedTuple):
    """The pruning options of `DecodeOptions`."""

    beam: np.float32
    lattice_beam: np.float32
    max_active: int
    min_active: int
    beam_delta: np.float32
    prune_interval: int


class Pools(NamedTuple):
    """The state of a search.

    tokens, links   TOKEN, LINK; `place` has the numbers in use
    token_begin     int64: first token of each frame
    link_begin      int64: first link of each segment
    token_of_state  int32 (num_states): the newest token of a state; an entry is valid if it is a token of the
                    current frame and that state
    place           int64: the position of the search; see FRAME, BEGIN, ... above
    """

    tokens: np.ndarray
    links: np.ndarray
    token_begin: np.ndarray
    link_begin: np.ndarray
    token_of_state: np.ndarray
    place: np.ndarray


@njit(nogil=True, cache=True)
def grown(pool, used, wanted):
    """`pool`, or a larger copy with room for `wanted` more entries after the `used` ones."""
    if used + wanted <= len(pool):
        return pool
    larger = np.empty(max(2 * len(pool), used + wanted), pool.dtype)
    copy_into(larger, 0, pool[:used])
    return larger


@njit(nogil=True, cache=True)
def with_room(pools, num_tokens, num_links, wanted):
    """The pools with room for `wanted` more tokens and links after the ones in use."""
    tokens, links = grown(pools.tokens, num_tokens, wanted), grown(pools.links, num_links, wanted)
    return Pools(tokens, links, pools.token_begin, pools.link_begin, pools.token_of_state, pools.place)


@njit(nogil=True, cache=True)
def kth_cost(tokens, begin, end, low, high, k):
    """A cost between `low` and `high` that about `k` tokens are below, to within (high - low) / 65536."""
    counts = np.empty(_NUM_BINS, np.int64)
    for _ in range(2):
        counts[:] = 0
        width = (high - low) / np.float32(_NUM_BINS)
        if not width > 0:
            return high
        inverse = np.float32(1.0) / width
        for i in range(begin, end):
            cost = tokens[i].cost
            if low <= cost < high:
                counts[min(np.int64((cost - low) * inverse), _NUM_BINS - 1)] += 1
        chosen = 0
        while chosen < _NUM_BINS - 1 and counts[chosen] < k:
            k -= counts[chosen]
            chosen += 1
        low = low + np.float32(chosen) * width
        high = low + width
    return high


@njit(nogil=True, cache=True)
def search_cutoff(tokens, begin, end, limits):
    """(best token, cutoff, beam for the next frame), narrowed to `max_active` tokens or widened to
    `min_active`; inf below `min_active`."""
    beam = limits.beam
    max_active = limits.max_active
    min_active = limits.min_active
    beam_delta = limits.beam_delta
    best, worst, best_token = _INF, -_INF, begin
    for i in range(begin, end):
        cost = tokens[i].cost
        worst = max(worst, cost)
        if cost < best:
            best, best_token = cost, i
    within = 0
    cutoff = best + beam
    for i in range(begin, end):
        within += tokens[i].cost <= cutoff
    if within > max_active:
        cutoff = kth_cost(tokens, begin, end, best, cutoff, max_active)
        return best_token, cutoff, cutoff - best + beam_delta
    if end - begin <= min_active:
        return best_token, _INF, _INF
    if within < min_active:
        cutoff = kth_cost(tokens, begin, end, best, worst, min_active)
        return best_token, cutoff, cutoff - best + beam_delta
    return best_token, cutoff, beam


@njit(nogil=True, cache=True)
def count_arcs(tokens, begin, end, offsets, cutoff):
    """An upper bound of the number of links of the next emitting step."""
    count = 0
    for i in range(begin, end):
        if tokens[i].cost <= cutoff:
            state = tokens[i].state
            count += offsets[state, 1] - offsets[state, 0]
    return count


@njit(nogil=True, cache=True)
def emit(graph, acoustic, pools, best_token, cutoff, beam, lattice_beam):
    """Follow all emitting arcs from the newest frame's tokens. Returns (number of tokens, number of links,
    cutoff of the new frame).

    acoustic  float32 (num_pdfs): scaled acoustic cost of the frame, minus the frame's best cost
    pools     with room for the number of links that `count_arcs` returns

    No link is created if its cost exceeds its target's by more than the lattice beam, because no path inside
    the beam can contain it.
    """
    arcs = graph.arcs
    offsets = graph.offsets
    tokens = pools.tokens
    links = pools.links
    token_of_state = pools.token_of_state
    begin, end, num_links = pools.place[BEGIN], pools.place[NUM_TOKENS], pools.place[NUM_LINKS]
    num_tokens = end
    best_state = tokens[best_token].state
    next_cutoff = _INF
    for a in range(offsets[best_state, 0], offsets[best_state, 1]):
        next_cutoff = min(
            next_cutoff, tokens[best_token].cost + arcs[a].weight + acoustic[arcs[a].pdf] + beam
        )
    for i in range(begin, end):
        cost = tokens[i].cost
        if cost > cutoff:
            continue
        state = tokens[i].state
        for a in range(offsets[state, 0], offsets[state, 1]):
            total = cost + arcs[a].weight + acoustic[arcs[a].pdf]
            if total >= next_cutoff:
                continue
            if total + beam < next_cutoff:
                next_cutoff = total + beam
            target = arcs[a].target
            j = token_of_state[target]
            if j < end or j >= num_tokens or tokens[j].state != target:
                j = num_tokens
                token_of_state[target] = j
                tokens[j].state = target
                tokens[j].cost = total
                tokens[j].extra = np.float32(0)
                num_tokens += 1
            elif total < tokens[j].cost:
                tokens[j].cost = total
            elif total > tokens[j].cost + lattice_beam:
                continue
            links[num_links].source = i
            links[num_links].target = j
            links[num_links].arc = a
            links[num_links].total = total
            num_links += 1
    return num_tokens, num_links, next_cutoff


@njit(nogil=True, cache=True)
def close_epsilons(graph, heads, pools, cutoff, lattice_beam):
    """Follow the epsilon arcs inside a frame of a graph without epsilon cycles; each token once, in the order
    of its state's level.

    heads   int32 (num_levels), all -1: first waiting token of each level; the others are chained through
            `scratch`

    Returns (tokens, links, number of tokens, number of links).
    """
    arcs, offsets, levels, tokens, links = graph.arcs, graph.offsets, graph.levels, pools.tokens, pools.links
    token_of_state = pools.token_of_state
    begin, num_tokens, num_links = pools.place[BEGIN], pools.place[NUM_TOKENS], pools.place[NUM_LINKS]
    for i in range(begin, num_tokens):
        if tokens[i].cost < cutoff:
            level = levels[tokens[i].state]
            if level >= 0:
                tokens[i].scratch = heads[level]
                heads[level] = i
    level = 0
    while level < len(heads):
        i = heads[level]
        if i < 0:
            level += 1
            continue
        heads[level] = tokens[i].scratch
        state, cost = tokens[i].state, tokens[i].cost
        first, last = offsets[state, 1], offsets[state + 1, 0]
        tokens = grown(tokens, num_tokens, last - first)
        links = grown(links, num_links, last - first)
        for a in range(first, last):
            total = cost + arcs[a].weight
            if total >= cutoff:
                continue
            target = arcs[a].target
            j = token_of_state[target]
            waits = False
            if j < begin or j >= num_tokens or tokens[j].state != target:
                j = num_tokens
                token_of_state[target] = j
                tokens[j].state = target
                tokens[j].cost = total
                tokens[j].extra = np.float32(0)
                num_tokens += 1
                waits = True
            elif total < tokens[j].cost:
                waits = tokens[j].cost >= cutoff
                tokens[j].cost = total
            elif total > tokens[j].cost + lattice_beam:
                continue
            if waits and levels[target] >= 0:
                tokens[j].scratch = heads[levels[target]]
                heads[levels[target]] = j
            links[num_links].source = i
            links[num_links].target = j
            links[num_links].arc = a
            links[num_links].total = total
            num_links += 1
    return tokens, links, num_tokens, num_links


@njit(nogil=True, cache=True)
def _relax(graph, pools, cutoff):
    """Lowest costs over epsilon arcs that may form cycles. Returns tokens, their number, time of each token's
    last improvement, status."""
    arcs, offsets, tokens, token_of_state = graph.arcs, graph.offsets, pools.tokens, pools.token_of_state
    begin, num_tokens = pools.place[BEGIN], pools.place[NUM_TOKENS]
    stamps = np.arange(max(16, 2 * (num_tokens - begin)))
    dirty = np.ones(len(stamps), np.int64)
    now, changed, rounds = len(stamps), True, 0
    while changed:
        changed = False
        rounds += 1
        if rounds > _MAX_ROUNDS:
            return tokens, num_tokens, stamps, NEGATIVE_CYCLE
        i = begin
        while i < num_tokens:
            state, cost = tokens[i].state, tokens[i].cost
            first, last = offsets[state, 1], offsets[state + 1, 0]
            work = dirty[i - begin] and cost < cutoff
            dirty[i - begin] = 0
            i += 1
            if not work or first == last:
                continue
            tokens = grown(tokens, num_tokens, last - first)
            stamps = grown(stamps, num_tokens - begin, last - first)
            dirty = grown(dirty, num_tokens - begin, last - first)
            for a in range(first, last):
                total, target = cost + arcs[a].weight, arcs[a].target
                if total >= cutoff:
                    continue
                j = token_of_state[target]
                if j < begin or j >= num_tokens or tokens[j].state != target:
                    j = num_tokens
                    token_of_state[target] = j
                    tokens[j].state = target
                    tokens[j].extra = np.float32(0)
                    num_tokens += 1
                elif total >= tokens[j].cost:
                    continue
                tokens[j].cost = total
                stamps[j - begin] = now
                dirty[j - begin] = 1
                now += 1
                changed = True
    return tokens, num_tokens, stamps, OK


@njit(nogil=True, cache=True)
def close_epsilon_cycles(graph, pools, cutoff):
    """Like `close_epsilons`, for a graph with epsilon cycles, all of positive cost: links that would close a
    cycle are skipped.

    States of a strongly connected component share their level. Inside a component, a link is kept if its
    target's cost was settled after its source's, which is true for each link of a best path.
    """
    arcs = graph.arcs
    offsets = graph.offsets
    levels = graph.levels
    links = pools.links
    token_of_state = pools.token_of_state
    begin, num_links = pools.place[BEGIN], pools.place[NUM_LINKS]
    tokens, num_tokens, stamps, status = _relax(graph, pools, cutoff)
    keys = np.empty(num_tokens - begin, np.int64)
    for i in range(len(keys)):
        level = levels[tokens[begin + i].state]
        keys[i] = _NO_EPSILON + i if level < 0 else (np.int64(level) << 40) + stamps[i]
    for i in np.argsort(keys):
        state, cost = tokens[begin + i].state, tokens[begin + i].cost
        if keys[i] >= _NO_EPSILON or cost >= cutoff:
            continue
        links = grown(links, num_links, offsets[state + 1, 0] - offsets[state, 1])
        for a in range(offsets[state, 1], offsets[state + 1, 0]):
            total = cost + arcs[a].weight
            if total >= cutoff:
                continue
            j = token_of_state[arcs[a].target]
            if keys[j - begin] > keys[i]:
                links[num_links].source = begin + i
                links[num_links].target = j
                links[num_links].arc = a
                links[num_links].total = total
                num_links += 1
    return tokens, links, num_tokens, num_links, status


@njit(nogil=True, cache=True)
def _close_frame(graph, heads, pools, cutoff, lattice_beam):
    """Follow the epsilon arcs inside the newest frame. Returns the pools."""
    place, frame = pools.place, pools.place[FRAME]
    if graph.cyclic:
        tokens, links, num_tokens, num_links, place[STATUS] = close_epsilon_cycles(graph, pools, cutoff)
    else:
        tokens, links, num_tokens, num_links = close_epsilons(graph, heads, pools, cutoff, lattice_beam)
    pools.token_begin[frame + 1] = num_tokens
    pools.link_begin[2 * frame + 1] = num_links
    place[NUM_EXPANDED] += num_tokens - place[BEGIN]
    place[NUM_TOKENS], place[NUM_LINKS] = num_tokens, num_links
    place[PEAK_LINKS] = max(place[PEAK_LINKS], num_links)
    return Pools(tokens, links, pools.token_begin, pools.link_begin, pools.token_of_state, place)


@njit(nogil=True, cache=True)
def begin_search(graph, start, limits, tokens, links, token_of_state):
    """The pools of a search before its first frame. `token_of_state` may contain entries of earlier
    searches."""
    token_begin = np.zeros(2, np.int64)
    link_begin = np.zeros(3, np.int64)
    place = np.zeros(_PLACE_LEN, np.int64)
    tokens[0].state, tokens[0].cost, tokens[0].extra = start, np.float32(0), np.float32(0)
    token_of_state[start] = 0
    place[NUM_TOKENS], place[SETTLED] = 1, -1
    heads = np.full(graph.num_levels, -1, np.int32)
    pools = Pools(tokens, links, token_begin, link_begin, token_of_state, place)
    return _close_frame(graph, heads, pools, limits.beam, limits.lattice_beam)


@njit(nogil=True, cache=True)
def advance(graph, loglikes, scale, limits, pools):
    """Advance a search by the frames of `loglikes`. It stops, and sets place[IS_DEAD] to 1, if no path of the
    graph continues.

    Returns the pools, which may have been reallocated.
    """
    place, lattice_beam = pools.place, limits.lattice_beam
    acoustic, heads = np.empty(loglikes.shape[1], np.float32), np.full(graph.num_levels, -1, np.int32)
    token_begin = grown(pools.token_begin, place[FRAME] + 2, len(loglikes))
    link_begin = grown(pools.link_begin, 2 * place[FRAME] + 3, 2 * len(loglikes))
    pools = Pools(pools.tokens, pools.links, token_begin, link_begin, pools.token_of_state, place)
    for row in range(len(loglikes)):
        if place[IS_DEAD] or place[STATUS] != OK:
            break
        frame = place[FRAME]
        if frame > 0 and frame % limits.prune_interval == 0:
            first = prune_back(pools, frame, place[SETTLED], np.float32(0.1) * lattice_beam, lattice_beam)
            place[NUM_TOKENS], place[NUM_LINKS] = compact(pools, first, frame)
            place[BEGIN], place[SETTLED] = token_begin[frame], frame
        begin, end = place[BEGIN], place[NUM_TOKENS]
        best_token, cutoff, beam = search_cutoff(pools.tokens, begin, end, limits)
        for pdf in range(len(acoustic)):
            acoustic[pdf] = -scale * loglikes[row, pdf] - pools.tokens[best_token].cost
        wanted = count_arcs(pools.tokens, begin, end, graph.offsets, cutoff)
        pools = with_room(pools, end, place[NUM_LINKS], wanted)
        num_tokens, num_links, next_cutoff = emit(
            graph, acoustic, pools, best_token, cutoff, beam, lattice_beam
        )
        if num_tokens == end:
            place[IS_DEAD] = 1
            break
        link_begin[2 * frame + 2] = num_links
        place[FRAME] = frame + 1
        place[BEGIN] = end
        place[NUM_TOKENS] = num_tokens
        place[NUM_LINKS] = num_links
        pools = _close_frame(graph, heads, pools, next_cutoff, lattice_beam)
    return pools


@njit(nogil=True, cache=True)
def finish_search(pools, finals, lattice_beam):
    """Prune with the final costs after the last frame. Returns whether a final state was reached."""
    frame, token_begin, link_begin = pools.place[FRAME], pools.token_begin, pools.link_begin
    is_complete = pools.place[IS_DEAD] == 0
    reached = final_extras(
        pools.tokens, token_begin[frame], token_begin[frame + 1], finals, lattice_beam, is_complete
    )
    prune_segment(pools.tokens, pools.links, link_begin[2 * frame], link_begin[2 * frame + 1], lattice_beam)
    prune_back(pools, frame, -1, np.float32(0), lattice_beam)
    compact(pools, 0, frame)
    return reached


@njit(nogil=True, cache=True)
def best_arcs(pools):
    """Arcs, in order, of the path to the best token of the newest frame; the total of a token's best link is
    the token's cost."""
    tokens, links, place = pools.tokens, pools.links, pools.place
    token = place[BEGIN]
    for i in range(place[BEGIN], place[NUM_TOKENS]):
        if tokens[i].cost < tokens[token].cost:
            token = i
    arcs, count = np.empty(place[NUM_LINKS], np.int32), 0
    for k in range(place[NUM_LINKS] - 1, -1, -1):
        if links[k].target == token and links[k].total == tokens[token].cost:
            arcs[count] = links[k].arc
            token = links[k].source
            count += 1
    return arcs[:count][::-1].copy()


@njit(nogil=True, cache=True)
def lattice_arrays(arcs, tids, words, finals, loglikes, pools, reached):
    """Arcs and final costs of the lattice of the remaining links; tokens are its states."""
    tokens, links, token_begin, link_begin = pools.tokens, pools.links, pools.token_begin, pools.link_begin
    num_frames = pools.place[FRAME]
    num_arcs, num_states = link_begin[2 * num_frames + 1], token_begin[num_frames + 1]
    sources, targets = np.empty(num_arcs, np.int32), np.empty(num_arcs, np.int32)
    ilabels, olabels = np.empty(num_arcs, np.int32), np.empty(num_arcs, np.int32)
    graph, acoustic = np.empty(num_arcs, np.float32), np.zeros(num_arcs, np.float32)
    for segment in range(2 * num_frames + 1):
        for k in range(link_begin[segment], link_begin[segment + 1]):
            a = links[k].arc
            sources[k], targets[k] = links[k].source, links[k].target
            ilabels[k], olabels[k], graph[k] = tids[a], words[a], arcs[a].weight
            if segment % 2 == 1:
                acoustic[k] = -loglikes[segment // 2, arcs[a].pdf]
    final = np.full(num_states, _INF, np.float32)
    for i in range(token_begin[num_frames], num_states):
        final[i] = finals[tokens[i].state] if reached else np.float32(0)
    return sources, targets, ilabels, olabels, graph, acoustic, final
