"""The search of lattice determinisation. docs/decoding/lattices.md derives it;
`pyasr.decode.lattices.determinize` calls it.

A state of the result is a set of elements (`determinize_pools`). A *task* is a state with one of the words
that can follow it. Tasks are processed in the order of the best path through them, so a state is first
reached by its best path. A task has these steps:

    follow   the word's arcs out of the state's elements
    close    the set under arcs without words
    gather   the costs and the prefix that all elements have in common; they go to the arc that the task
             writes
    plan     the tasks of the state that consists of the remainders, if the state is new

Costs are integers in units of 2^-32, exact for the float32 costs of raw arcs. Sums therefore do not depend on
their order, and ties are exact.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.determinize_pools import (
    ARCS,
    BASE,
    ELEMENTS,
    NODES,
    NUM_REACHED,
    QUEUED,
    STATES,
    STEPS,
    STRINGS,
    TASKS,
    add_set,
    child,
    common_prefix,
    find_set,
    has_room,
    mixed,
    node_of,
    order,
    pop,
    push,
    string_is_better,
    tail_hash,
)

UNITS = 2.0**32
NEVER = np.int64(1) << 62
NO_TASK = np.int64(-1)
BEFORE_CLOSURE, CLOSED = range(2)

RAW_ARC = np.dtype([("target", "i4"), ("tid", "i4"), ("word", "i4"), ("graph", "f4"), ("acoustic", "f4")])
Raw = namedtuple("Raw", "arcs offsets acoustic_scale final_graph final_acoustic beta useful")
Raw.__doc__ = """The raw lattice, its states in topological order.

arcs, offsets  RAW_ARC, int64 (num_states + 1, 2): a state's arcs without words begin at offsets[s, 0],
               those with words at offsets[s, 1]
final_graph, final_acoustic, beta
               int64 (num_states): final costs and the lowest cost to the end; NEVER if there is none
useful         bool (num_states): whether a state is final or has a word arc
"""


@njit(nogil=True, cache=True)
def units(value):
    """A cost in integer units."""
    return np.int64(np.rint(np.float64(value) * UNITS))


@njit(nogil=True, cache=True)
def backward(arcs, offsets, acoustic_scale, final_graph, final_acoustic):
    """Lowest cost from each raw state to the end; NEVER if the end cannot be reached."""
    beta = np.empty(len(final_graph), np.int64)
    for s in range(len(beta) - 1, -1, -1):
        beta[s] = NEVER if final_graph[s] == NEVER else final_graph[s] + final_acoustic[s]
        for a in range(offsets[s, 0], offsets[s + 1, 0]):
            if beta[arcs[a].target] != NEVER:
                beta[s] = min(
                    beta[s],
                    beta[arcs[a].target] + units(arcs[a].graph) + units(acoustic_scale * arcs[a].acoustic),
                )
    return beta


@njit(nogil=True, cache=True)
def arrive(pools, state, node, graph, acoustic):
    """Record a path to a raw state by the string of `node`, unless a better path is known."""
    reached, e, num_reached = pools.reached, pools.where[state], pools.counts[NUM_REACHED]
    if e < num_reached and reached[e].state == state:
        better = order(graph, acoustic, reached[e].graph, reached[e].acoustic)
        if better < 0 or (better == 0 and not string_is_better(pools.nodes, node, reached[e].node)):
            return
    else:
        e = num_reached
        pools.counts[NUM_REACHED] = e + 1
        pools.where[state] = e
    reached[e].state, reached[e].node, reached[e].graph, reached[e].acoustic = state, node, graph, acoustic


@njit(nogil=True, cache=True)
def follow(raw, pools, task):
    """Record paths to the targets of a task's word arcs; NO_TASK: to the start state."""
    pools.counts[NUM_REACHED] = 0
    if task == NO_TASK:
        arrive(pools, np.int32(0), np.int32(0), np.int64(0), np.int64(0))
        return
    for i in range(pools.tasks[task].begin, pools.tasks[task].end):
        element, arc = pools.elements[pools.steps[i].element], raw.arcs[pools.steps[i].arc]
        arrive(
            pools,
            arc.target,
            child(pools, element.node, arc.tid),
            element.graph + units(arc.graph),
            element.acoustic + units(raw.acoustic_scale * arc.acoustic),
        )


@njit(nogil=True, cache=True)
def keep_all(pools):
    """Keep all elements reached, in the order of their raw states. Returns their number."""
    num_reached = pools.counts[NUM_REACHED]
    for e in range(num_reached):
        push(pools.agenda, e, pools.reached[e].state, e)
    for i in range(num_reached):
        pools.kept[i] = pop(pools.agenda, num_reached - i)
    return num_reached


@njit(nogil=True, cache=True)
def close(raw, pools, beam):
    """Follow arcs without words from the elements reached, each raw state once, in topological order. Returns
    the number of elements kept.

    Only paths within `beam` of the best path to the end are followed. Elements of final states and of states
    with word arcs are kept. Returns -1 if the pool of strings is full.
    """
    arcs, offsets, beta, useful, scale = raw.arcs, raw.offsets, raw.beta, raw.useful, raw.acoustic_scale
    reached, agenda, where, kept = pools.reached, pools.agenda, pools.where, pools.kept
    limit, num_reached = NEVER, pools.counts[NUM_REACHED]
    for e in range(num_reached):
        limit = min(limit, reached[e].graph + reached[e].acoustic + beta[reached[e].state] + beam)
        push(agenda, e, reached[e].state, e)
    size, num_kept = num_reached, 0
    while size:
        e = pop(agenda, size)
        size -= 1
        state = reached[e].state
        if useful[state]:
            kept[num_kept] = e
            num_kept += 1
        for a in range(offsets[state, 0], offsets[state, 1]):
            target = arcs[a].target
            graph = reached[e].graph + units(arcs[a].graph)
            acoustic = reached[e].acoustic + units(scale * arcs[a].acoustic)
            if graph + acoustic + beta[target] > limit:
                continue
            known = where[target]
            if known >= num_reached or reached[known].state != target:
                known = num_reached
                where[target] = known
                num_reached += 1
                push(agenda, size, target, known)
                size += 1
            else:
                better = order(graph, acoustic, reached[known].graph, reached[known].acoustic)
                if better < 0:
                    continue
                if better == 0:
                    if pools.counts[NODES] + num_reached + 2 > len(pools.nodes):
                        return -1
                    if not string_is_better(
                        pools.nodes, child(pools, node_of(pools, e), arcs[a].tid), node_of(pools, known)
                    ):
                        continue
            reached[known].state = target
            reached[known].node = -1
            reached[known].back = e
            reached[known].tid = arcs[a].tid
            reached[known].graph, reached[known].acoustic = graph, acoustic
    pools.counts[NUM_REACHED] = num_reached
    return num_kept


@njit(nogil=True, cache=True)
def gather(pools, num_kept):
    """(costs of the best of the elements kept, node of their common prefix): graph, acoustic, prefix."""
    reached, best = pools.reached, pools.kept[0]
    prefix = node_of(pools, best)
    for i in range(1, num_kept):
        e = pools.kept[i]
        prefix = common_prefix(pools.nodes, prefix, node_of(pools, e))
        if order(reached[e].graph, reached[e].acoustic, reached[best].graph, reached[best].acoustic) > 0:
            best = e
    return reached[best].graph, reached[best].acoustic, prefix


@njit(nogil=True, cache=True)
def write_elements(pools, num_kept, graph, acoustic, prefix, kind):
    """Write the elements kept, minus these costs and this prefix, after the pool's end. Returns the key of
    their set.

    kind  BEFORE_CLOSURE or CLOSED: sets of different kinds have different keys
    """
    reached, elements, key = pools.reached, pools.elements, np.uint64(kind)
    for i in range(num_kept):
        e, k = pools.kept[i], pools.counts[ELEMENTS] + i
        elements[k].state, elements[k].node = reached[e].state, reached[e].node
        elements[k].graph, elements[k].acoustic = reached[e].graph - graph, reached[e].acoustic - acoustic
        elements[k].hash = tail_hash(pools, prefix, reached[e].node)
        key = mixed(key * BASE + elements[k].hash + mixed(np.uint64(elements[k].state)))
    return key


@njit(nogil=True, cache=True)
def write_arc(pools, task, target, graph, acoustic, prefix, arc, num_labels):
    """Write the arc of a task. Returns False, and writes nothing, if there is no room for its string.

    The string leads from the source's prefix to the node `prefix`, followed by the last `num_labels` labels
    of the string of `arc`.
    """
    source = pools.tasks[task].state
    nodes = pools.nodes
    counts = pools.counts
    arcs = pools.arcs
    strings = pools.strings
    own = nodes[prefix].depth - nodes[pools.states[source].prefix].depth
    if not has_room(pools, 0, 0, 0, own + num_labels):
        return False
    k, begin = counts[ARCS], counts[STRINGS]
    end = begin + own + num_labels
    counts[ARCS], counts[STRINGS] = k + 1, end
    arcs[k].source = source
    arcs[k].target = target
    arcs[k].word = pools.tasks[task].word
    arcs[k].graph = graph
    arcs[k].acoustic = acoustic
    arcs[k].begin, arcs[k].end = begin, end
    for i in range(begin + own - 1, begin - 1, -1):
        strings[i] = nodes[prefix].tid
        prefix = nodes[prefix].parent
    for i in range(num_labels):
        strings[end - 1 - i] = strings[arcs[arc].end - 1 - i]
    return True


@njit(nogil=True, cache=True)
def finish(raw, pools, q):
    """Set the final cost and string of a state: those of its best element that is final."""
    states, elements, members = pools.states, pools.elements, pools.sets[pools.states[q].set]
    states[q].final = -1
    for k in range(members.begin, members.end):
        state = elements[k].state
        if raw.final_graph[state] == NEVER:
            continue
        graph = elements[k].graph + raw.final_graph[state]
        acoustic = elements[k].acoustic + raw.final_acoustic[state]
        better = (
            1
            if states[q].final < 0
            else order(graph, acoustic, states[q].final_graph, states[q].final_acoustic)
        )
        if better > 0 or (better == 0 and string_is_better(pools.nodes, elements[k].node, states[q].final)):
            states[q].final = elements[k].node
            states[q].final_graph = graph
            states[q].final_acoustic = acoustic


@njit(nogil=True, cache=True)
def add_state(raw, pools, s, prefix, cost, limit):
    """Add the state of the set `s`. cost: that of the best path from the start."""
    q, states = np.int32(pools.counts[STATES]), pools.states
    pools.counts[STATES] = q + 1
    states[q].set, states[q].cost, states[q].prefix = s, cost, prefix
    pools.sets[s].state = q
    finish(raw, pools, q)
    if states[q].final >= 0 and cost + states[q].final_graph + states[q].final_acoustic > limit:
        states[q].final = -1
    return q


@njit(nogil=True, cache=True)
def word_steps(raw, pools, q):
    """(elements, arcs, totals to the end) of the word arcs out of the elements of state `q`, sorted by
    word."""
    elements, members = pools.elements, pools.sets[pools.states[q].set]
    count = 0
    for k in range(members.begin, members.end):
        count += raw.offsets[elements[k].state + 1, 0] - raw.offsets[elements[k].state, 1]
    words = np.empty(count, np.int32)
    owners = np.empty(count, np.int32)
    arcs = np.empty(count, np.int32)
    totals = np.empty(count, np.int64)
    i = 0
    for k in range(members.begin, members.end):
        state, total = elements[k].state, elements[k].graph + elements[k].acoustic
        for a in range(raw.offsets[state, 1], raw.offsets[state + 1, 0]):
            arc = raw.arcs[a]
            words[i], owners[i], arcs[i] = arc.word, k, a
            totals[i] = min(
                NEVER,
                total + units(arc.graph) + units(raw.acoustic_scale * arc.acoustic) + raw.beta[arc.target],
            )
            i += 1
    by_word = np.argsort(words, kind="mergesort")
    return owners[by_word], arcs[by_word], totals[by_word]


@njit(nogil=True, cache=True)
def plan(raw, pools, q, limit, beam):
    """Queue a task for each word that can follow state `q` on a path of cost up to `limit`. Returns False if
    a pool is full."""
    owners, arcs, totals = word_steps(raw, pools, q)
    if not has_room(pools, 0, 0, len(arcs), 0):
        return False
    counts, steps, i = pools.counts, pools.steps, 0
    while i < len(arcs):
        word, first, best = raw.arcs[arcs[i]].word, i, NEVER
        while i < len(arcs) and raw.arcs[arcs[i]].word == word:
            best = min(best, totals[i])
            i += 1
        if pools.states[q].cost + best > limit:
            continue
        task = counts[TASKS]
        counts[TASKS] = task + 1
        pools.tasks[task].state, pools.tasks[task].word, pools.tasks[task].begin = q, word, counts[STEPS]
        for j in range(first, i):
            if totals[j] <= best + beam:
                steps[counts[STEPS]].element, steps[counts[STEPS]].arc = owners[j], arcs[j]
                counts[STEPS] += 1
        pools.tasks[task].end = counts[STEPS]
        push(pools.queue, counts[QUEUED], pools.states[q].cost + best, task)
        counts[QUEUED] += 1
    return True


@njit(nogil=True, cache=True)
def start(raw, pools, limit, beam, delta):
    """Add the start state and its tasks. It keeps common costs and prefix, since no arc leads to it. Returns
    False if a pool is full."""
    follow(raw, pools, NO_TASK)
    num_kept = close(raw, pools, beam)
    if num_kept < 0 or not has_room(pools, pools.counts[NUM_REACHED], num_kept, 0, 0):
        return False
    gather(pools, num_kept)
    key = write_elements(pools, num_kept, np.int64(0), np.int64(0), np.int32(0), CLOSED)
    _, slot = find_set(pools, key, num_kept, delta)
    q = add_state(raw, pools, add_set(pools, key, num_kept, slot), np.int32(0), np.int64(0), limit)
    return plan(raw, pools, q, limit, beam)


@njit(nogil=True, cache=True)
def expand(raw, pools, task, limit, beam, delta):
    """Process a task. Sets that are equal before the closure are equal after it, so it is done once. Returns
    False if a pool is full."""
    counts = pools.counts
    num_nodes, num_steps = counts[NODES], pools.tasks[task].end - pools.tasks[task].begin
    if not has_room(pools, num_steps, num_steps, 0, 0):
        return False
    follow(raw, pools, task)
    num_kept = keep_all(pools)
    graph, acoustic, prefix = gather(pools, num_kept)
    key = write_elements(pools, num_kept, graph, acoustic, prefix, BEFORE_CLOSURE)
    s, slot = find_set(pools, key, num_kept, delta)
    if s < 0:
        s = add_set(pools, key, num_kept, slot)
        return expand_closed(raw, pools, task, s, (graph, acoustic, prefix), num_nodes, (limit, beam, delta))
    known = pools.sets[s]
    done = write_arc(
        pools,
        task,
        known.state,
        graph + known.graph,
        acoustic + known.acoustic,
        prefix,
        known.arc,
        known.num_labels,
    )
    counts[NODES] = num_nodes
    return done


@njit(nogil=True, cache=True)
def expand_closed(raw, pools, task, before, common, num_nodes, limits):
    """Process a task whose set before the closure, `before`, is new.

    common     graph cost, acoustic cost and prefix of that set
    num_nodes  nodes in use before the task
    limits     limit, beam and delta of `expand`
    """
    counts, (first_graph, first_acoustic, first_prefix), (limit, beam, delta) = pools.counts, common, limits
    num_kept = close(raw, pools, beam)
    if num_kept < 0 or not has_room(pools, counts[NUM_REACHED], num_kept, 0, 0):
        return False
    graph, acoustic, prefix = gather(pools, num_kept)
    key = write_elements(pools, num_kept, graph, acoustic, prefix, CLOSED)
    s, slot = find_set(pools, key, num_kept, delta)
    fresh = s < 0
    if fresh:
        s = add_set(pools, key, num_kept, slot)
        add_state(raw, pools, s, prefix, pools.states[pools.tasks[task].state].cost + graph + acoustic, limit)
    q, known = pools.sets[s].state, pools.sets[before]
    known.state = q
    known.arc = counts[ARCS]
    known.num_labels = pools.nodes[prefix].depth - pools.nodes[first_prefix].depth
    known.graph, known.acoustic = graph - first_graph, acoustic - first_acoustic
    if not write_arc(pools, task, q, graph, acoustic, prefix, 0, 0):
        return False
    if fresh:
        return plan(raw, pools, q, limit, beam)
    counts[NODES] = num_nodes
    return True


@njit(nogil=True, cache=True)
def search(raw, pools, beam, delta):
    """Process tasks in the order of their best paths until none within `beam` is left or a pool is full.
    Returns the beam reached."""
    best, reached, counts = raw.beta[0], np.int64(0), pools.counts
    has_gone_on = start(raw, pools, best + beam, beam, delta)
    while has_gone_on and counts[QUEUED]:
        reached = pools.queue[0, 0] - best
        task = pop(pools.queue, counts[QUEUED])
        counts[QUEUED] -= 1
        has_gone_on = expand(raw, pools, task, best + beam, beam, delta)
    return beam if has_gone_on else reached
