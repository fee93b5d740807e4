"""Inner loops of `training_graphs`: composition of lexicon and words, phone graph, contexts, HMM nodes.
Arrays are in CSR form: the items of row i are `offsets[i]:offsets[i + 1]`. Costs are negated natural
logarithms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit

_MAX_EPSILON_PATHS = 100000


class LexiconArcs(NamedTuple):
    """The lexicon's transducer, with arcs sorted by (state, word)."""

    start: int
    arc_offsets: np.ndarray
    phones: np.ndarray
    words: np.ndarray
    costs: np.ndarray
    nextstates: np.ndarray
    finals: np.ndarray


class Visits(NamedTuple):
    """Work arrays of `compose_words`, reused between calls, initially 0: int64 (1), (2, num_states), (2,
    num_states)."""

    counter: np.ndarray
    stamp: np.ndarray
    slot: np.ndarray


class Edges(NamedTuple):
    """Edges to possible successors; those of node v are offsets[v]:offsets[v + 1]. `initial` and `final` are
    costs, inf if a node cannot be first or last."""

    offsets: np.ndarray
    successors: np.ndarray
    costs: np.ndarray
    initial: np.ndarray
    final: np.ndarray


class Neighbours(NamedTuple):
    """The possible phones before and after each node, 0 at the ends."""

    left_offsets: np.ndarray
    left: np.ndarray
    right_offsets: np.ndarray
    right: np.ndarray


class Contexts(NamedTuple):
    """The context node of each window (the windows of phone node u are offsets[u]:offsets[u + 1]), the phone
    node of each context node."""

    offsets: np.ndarray
    node_of: np.ndarray
    phone_of: np.ndarray


class Hmms(NamedTuple):
    """HMM class c has the forward transitions offsets[c]:offsets[c + 1].

    tids, loops           transition-ids, and the self-loop of the state they leave (0: none)
    from_state, to_state  HMM states (-1: final)
    """

    offsets: np.ndarray
    tids: np.ndarray
    loops: np.ndarray
    from_state: np.ndarray
    to_state: np.ndarray


@njit(inline="always")
def log_add_cost(a, b):
    """-log(exp(-a) + exp(-b))."""
    low, high = min(a, b), max(a, b)
    if np.isinf(high):
        return low
    return low - np.log1p(np.exp(low - high))


@njit(inline="always")
def _visit(state, mark, stamp, slot, queue):
    """The position of `state` in `queue`; appends it unless its stamp is `mark` already."""
    if stamp[state] != mark:
        stamp[state] = mark
        slot[state] = len(queue)
        queue.append(np.int64(state))
    return slot[state]


@njit(nogil=True, cache=True)
def compose_words(words, lexicon, visits):
    """Compose the lexicon's transducer with a word sequence: (num_words_passed, sources, targets, phones,
    costs, finals), with arcs sorted by source and start state 0.

    A state is a lexicon state and the number of words before it. States are explored and numbered in the
    order of this number.
    """
    arc_words, counter, stamp, slot = lexicon.words, visits.counter, visits.stamp, visits.slot
    sources, targets, out_phones, out_costs = [np.int32(0)], [np.int32(0)], [np.int32(0)], [np.float64(0)]
    sources.pop(), targets.pop(), out_phones.pop(), out_costs.pop()
    out_finals = [np.float64(0)]
    out_finals.pop()
    queue, following = [np.int64(0)], [np.int64(0)]
    queue.pop(), following.pop()
    first, passed = 0, 0
    counter[0] += 1
    _visit(lexicon.start, counter[0], stamp[0], slot[0], queue)
    for level in range(len(words) + 1):
        here, there, now = level % 2, (level + 1) % 2, counter[0]
        counter[0] += 1
        first_arc, position = len(targets), 0
        while position < len(queue):
            state = queue[position]
            begin, end = lexicon.arc_offsets[state], lexicon.arc_offsets[state + 1]
            for consuming in range(2 if level < len(words) else 1):
                label = words[level] if consuming else 0
                a = begin + np.searchsorted(arc_words[begin:end], label)
                while a < end and arc_words[a] == label:
                    if consuming:
                        target = -1 - _visit(
                            lexicon.nextstates[a], now + 1, stamp[there], slot[there], following
                        )
                    else:
                        target = first + _visit(lexicon.nextstates[a], now, stamp[here], slot[here], queue)
                    sources.append(np.int32(first + position))
                    targets.append(np.int32(target))
                    out_phones.append(lexicon.phones[a])
                    out_costs.append(np.float64(lexicon.costs[a]))
                    a += 1
            out_finals.append(np.float64(lexicon.finals[state]) if level == len(words) else np.inf)
            position += 1
        first += len(queue)
        for a in range(first_arc, len(targets)):
            if targets[a] < 0:
                targets[a] = np.int32(first - 1 - targets[a])
        queue, following = following, queue
        following.clear()
        passed += len(queue) > 0
    return (
        passed,
        np.array(sources, dtype=np.int32),
        np.array(targets, dtype=np.int32),
        np.array(out_phones, dtype=np.int32),
        np.array(out_costs, dtype=np.float64),
        np.array(out_finals, dtype=np.float64),
    )


@njit(nogil=True, cache=True)
def offsets_of(rows, num_rows):
    """CSR offsets of sorted row numbers."""
    offsets = np.zeros(num_rows + 1, np.int64)
    for row in rows:
        offsets[row + 1] += 1
    for i in range(num_rows):
        offsets[i + 1] += offsets[i]
    return offsets


@njit(nogil=True, cache=True)
def coaccessible(sources, targets, finals):
    """bool (num_states): whether a final state can be reached."""
    good = np.isfinite(finals)
    changed = True
    while changed:
        changed = False
        for a in range(len(sources) - 1, -1, -1):
            if good[targets[a]] and not good[sources[a]]:
                good[sources[a]] = True
                changed = True
    return good


@njit(nogil=True, cache=True)
def _phone_nodes(sources, targets, phones, offsets, good):
    """(node of each arc or -1, phone of each node, state that each node leaves): one node for the arcs of a
    state with the same phone."""
    node_of = np.full(len(sources), -1, np.int32)
    node_phone = [np.int32(0)]
    node_phone.pop()
    node_state = [np.int32(0)]
    node_state.pop()
    for a in range(len(sources)):
        if phones[a] == 0 or not good[targets[a]]:
            continue
        for b in range(offsets[sources[a]], a):
            if phones[b] == phones[a] and node_of[b] >= 0:
                node_of[a] = node_of[b]
        if node_of[a] < 0:
            node_of[a] = len(node_phone)
            node_phone.append(phones[a])
            node_state.append(sources[a])
    return node_of, node_phone, node_state


@njit(nogil=True, cache=True)
def phone_graph(sources, targets, phones, costs, finals):
    """Nodes of phones and their successors: (ok, phones, `Edges`).

    Arcs must be sorted by source; the start state is 0. A node is a (state, phone) pair, so pronunciations
    can share it. Epsilons are removed, and the probabilities of parallel paths are added. `ok` is False if
    there is a cycle of epsilons.
    """
    num_states = len(finals)
    good = coaccessible(sources, targets, finals)
    offsets = offsets_of(sources, num_states)
    node_of, node_phone, node_state = _phone_nodes(sources, targets, phones, offsets, good)
    num = len(node_phone)
    initial, final = np.full(num, np.inf), np.full(num, np.inf)
    successors, edge_costs, edge_offsets = [np.int32(0)], [np.float64(0)], np.zeros(num + 1, np.int64)
    successors.pop(), edge_costs.pop()
    ok = True
    for u in range(-1, num):
        begin = len(successors)
        stack = [(np.int32(0), np.float64(0))]
        if u >= 0:
            stack.pop()
            for a in range(offsets[node_state[u]], offsets[node_state[u] + 1]):
                if node_of[a] == u:
                    stack.append((targets[a], costs[a]))
        visited = 0
        while len(stack) > 0 and visited < _MAX_EPSILON_PATHS:
            state, cost = stack.pop()
            visited += 1
            if u >= 0 and np.isfinite(finals[state]):
                final[u] = log_add_cost(final[u], cost + finals[state])
            previous = np.int32(-1)
            for a in range(offsets[state], offsets[state + 1]):
                if phones[a] == 0 and good[targets[a]]:
                    stack.append((targets[a], cost + costs[a]))
                v = node_of[a]
                if v < 0 or v <= previous:
                    continue
                previous = v
                if u < 0:
                    initial[v] = log_add_cost(initial[v], cost)
                    continue
                known = False
                for e in range(begin, len(successors)):
                    if successors[e] == v:
                        edge_costs[e] = log_add_cost(edge_costs[e], cost)
                        known = True
                if not known:
                    successors.append(v)
                    edge_costs.append(cost)
        ok &= visited < _MAX_EPSILON_PATHS
        if u >= 0:
            edge_offsets[u + 1] = len(successors)
    edges = Edges(
        edge_offsets,
        np.array(successors, dtype=np.int32),
        np.array(edge_costs, dtype=np.float64),
        initial,
        final,
    )
    return ok, np.array(node_phone, dtype=np.int32), edges


@njit(nogil=True, cache=True)
def _distinct_rows(rows):
    """CSR form of lists, each sorted and without repetitions."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    items = [np.int32(0)]
    items.pop()
    for i in range(len(rows)):
        last = np.int32(-1)
        for item in np.sort(np.array(rows[i], dtype=np.int32)):
            if item != last:
                items.append(item)
                last = item
        offsets[i + 1] = len(items)
    return offsets, np.array(items, dtype=np.int32)


@njit(nogil=True, cache=True)
def neighbours(phones, edges, use_left, use_right):
    """The `Neighbours` of phone nodes. On a side without context, the only neighbour is 0."""
    num, offsets, successors = len(phones), edges.offsets, edges.successors
    left = [[np.int32(0)] for _ in range(num)]
    right = [[np.int32(0)] for _ in range(num)]
    for u in range(num):
        if use_left and np.isinf(edges.initial[u]):
            left[u].pop(0)
        if use_right and np.isinf(edges.final[u]):
            right[u].pop(0)
    for u in range(num):
        for e in range(offsets[u], offsets[u + 1]):
            if use_right:
                right[u].append(phones[successors[e]])
            if use_left:
                left[successors[e]].append(phones[u])
    left_offsets, left_phones = _distinct_rows(left)
    right_offsets, right_phones = _distinct_rows(right)
    return Neighbours(left_offsets, left_phones, right_offsets, right_phones)


@njit(nogil=True, cache=True)
def window_codes(phones, around, base):
    """(offsets, codes): for each node the codes (l * base + phone) * base + r of all its windows, l outer, r
    inner."""
    left_offsets = around.left_offsets
    left = around.left
    right_offsets = around.right_offsets
    right = around.right
    offsets = np.zeros(len(phones) + 1, np.int64)
    codes = [np.int64(0)]
    codes.pop()
    for u in range(len(phones)):
        for i in range(left_offsets[u], left_offsets[u + 1]):
            for j in range(right_offsets[u], right_offsets[u + 1]):
                codes.append((np.int64(left[i]) * base + phones[u]) * base + right[j])
        offsets[u + 1] = len(codes)
    return offsets, np.array(codes, dtype=np.int64)


@njit(nogil=True, cache=True)
def context_nodes(around, code_offsets, classes):
    """Merge windows with the same HMM: (`Contexts`, class of each node int32).

    Left phones with equal rows of classes form a group; within a group, right phones of one class form a
    node. Each node thus represents a product of left and right phones, and merging creates no new path.
    """
    left_offsets, right_offsets = around.left_offsets, around.right_offsets
    node_of = np.full(len(classes), -1, np.int32)
    node_class, node_phone = [np.int32(0)], [np.int32(0)]
    node_class.pop(), node_phone.pop()
    for u in range(len(code_offsets) - 1):
        num_left, num_right = left_offsets[u + 1] - left_offsets[u], right_offsets[u + 1] - right_offsets[u]
        base = code_offsets[u]
        for i in range(num_left):
            row = base + i * num_right
            same = -1
            for k in range(i):
                other = base + k * num_right
                equal = True
                for j in range(num_right):
                    equal &= classes[other + j] == classes[row + j]
                if equal:
                    same = other
                    break
            for j in range(num_right):
                if same >= 0:
                    node_of[row + j] = node_of[same + j]
                    continue
                for k in range(j):
                    if classes[row + k] == classes[row + j]:
                        node_of[row + j] = node_of[row + k]
                        break
                if node_of[row + j] < 0:
                    node_of[row + j] = len(node_class)
                    node_class.append(classes[row + j])
                    node_phone.append(np.int32(u))
    return Contexts(code_offsets, node_of, np.array(node_phone, dtype=np.int32)), np.array(
        node_class, dtype=np.int32
    )


@njit(inline="always")
def _find(items, begin, end, item):
    for i in range(begin, end):
        if items[i] == item:
            return i - begin
    return -1


@njit(nogil=True, cache=True)
def context_edges(phones, edges, around, contexts, use_left, use_right):
    """`Edges` between context nodes, sorted by source, from those between phone nodes."""
    code_offsets, node_of, node_phone = contexts.offsets, contexts.node_of, contexts.phone_of
    left_offsets = around.left_offsets
    left = around.left
    right_offsets = around.right_offsets
    right = around.right
    num = len(node_phone)
    out_initial, out_final = np.full(num, np.inf), np.full(num, np.inf)
    out_offsets = np.zeros(num + 1, np.int64)
    out_successors, out_costs = [np.int32(0)], [np.float64(0)]
    out_successors.pop(), out_costs.pop()
    node = 0
    for u in range(len(phones)):
        base, end = code_offsets[u], code_offsets[u + 1]
        num_right = right_offsets[u + 1] - right_offsets[u]
        if np.isfinite(edges.initial[u]):
            for j in range(num_right):
                # 0 is the smallest phone: row 0, if there is left context
                out_initial[node_of[base + j]] = edges.initial[u]
        while node < num and node_phone[node] == u:
            for w in range(base, end):
                may_end = not use_right or right[right_offsets[u] + (w - base) % num_right] == 0
                if node_of[w] == node and may_end:
                    out_final[node] = edges.final[u]
            for e in range(edges.offsets[u], edges.offsets[u + 1]):
                v = edges.successors[e]
                j = _find(right, right_offsets[u], right_offsets[u + 1], phones[v] if use_right else 0)
                matches = False
                for w in range(base + j, end, num_right):
                    matches |= node_of[w] == node
                if not matches:
                    continue
                i = _find(left, left_offsets[v], left_offsets[v + 1], phones[u] if use_left else 0)
                v_right = right_offsets[v + 1] - right_offsets[v]
                first = code_offsets[v] + i * v_right
                for w in range(first, first + v_right):
                    if _find(node_of, first, w, node_of[w]) < 0:
                        out_successors.append(node_of[w])
                        out_costs.append(edges.costs[e])
            node += 1
            out_offsets[node] = len(out_successors)
    successors, costs = np.array(out_successors, dtype=np.int32), np.array(out_costs, dtype=np.float64)
    return Edges(out_offsets, successors, costs, out_initial, out_final)


@njit(nogil=True, cache=True)
def hmm_nodes(node_class, edges, hmms):
    """Replace every context node by the forward transitions of its HMM: (tids, loops, offsets, successors,
    costs, initial, final)."""
    hmm_offsets, hmm_from, hmm_to = hmms.offsets, hmms.from_state, hmms.to_state
    first = np.zeros(len(node_class) + 1, np.int64)
    for c in range(len(node_class)):
        first[c + 1] = first[c] + hmm_offsets[node_class[c] + 1] - hmm_offsets[node_class[c]]
    num = first[-1]
    tids, loops = np.empty(num, np.int32), np.empty(num, np.int32)
    out_initial, out_final = np.full(num, np.inf), np.full(num, np.inf)
    out_offsets = np.zeros(num + 1, np.int64)
    out_successors, out_costs = [np.int32(0)], [np.float64(0)]
    out_successors.pop(), out_costs.pop()
    for c in range(len(node_class)):
        begin, end = hmm_offsets[node_class[c]], hmm_offsets[node_class[c] + 1]
        for i in range(begin, end):
            node = first[c] + i - begin
            tids[node], loops[node] = hmms.tids[i], hmms.loops[i]
            if hmm_from[i] == 0:
                out_initial[node] = edges.initial[c]
            if hmm_to[i] < 0:
                out_final[node] = edges.final[c]
                for e in range(edges.offsets[c], edges.offsets[c + 1]):
                    d = edges.successors[e]
                    d_begin = hmm_offsets[node_class[d]]
                    for k in range(d_begin, hmm_offsets[node_class[d] + 1]):
                        if hmm_from[k] == 0:
                            out_successors.append(np.int32(first[d] + k - d_begin))
                            out_costs.append(edges.costs[e])
            else:
                for k in range(begin, end):
                    if hmm_from[k] == hmm_to[i]:
                        out_successors.append(np.int32(first[c] + k - begin))
                        out_costs.append(0.0)
            out_offsets[node + 1] = len(out_successors)
    return (
        tids,
        loops,
        out_offsets,
        np.array(out_successors, dtype=np.int32),
        np.array(out_costs, dtype=np.float32),
        out_initial,
        out_final,
    )


@njit(nogil=True, cache=True)
def phone_windows(sources, targets, phones, costs, finals, use_left, use_right, base):
    """(ok, phones, `Edges`) of `phone_graph`, their `Neighbours`, and offsets and codes of `window_codes`."""
    ok, node_phones, edges = phone_graph(sources, targets, phones, costs, finals)
    around = neighbours(node_phones, edges, use_left, use_right)
    offsets, codes = window_codes(node_phones, around, base)
    return ok, node_phones, edges, around, offsets, codes


@njit(nogil=True, cache=True)
def expanded(phones, edges, around, code_offsets, classes, hmms, use_left, use_right):
    """Expand a phone graph, given the classes of its windows, to the forward transitions of HMMs; see
    `hmm_nodes`."""
    contexts, node_class = context_nodes(around, code_offsets, classes)
    return hmm_nodes(node_class, context_edges(phones, edges, around, contexts, use_left, use_right), hmms)
