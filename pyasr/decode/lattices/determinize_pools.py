"""Memory of lattice determinisation, as pools of numpy records: strings, sets of elements, states, tasks,
arcs.

A *string* of transition-ids is a node of a tree: the labels on the path from the root, the start of the
utterance, to the node. Its hash is a polynomial of the labels, so that strings, and strings after removal of
their prefixes, are compared in constant time.

An *element* is a raw state with the cost and the string of the best path to it. A *set* consists of the
elements that one word sequence leads to, without their common costs and prefix.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from pyasr.base.compiled.kernels import njit

NODE = np.dtype([("parent", "i4"), ("tid", "i4"), ("depth", "i4"), ("hash", "u8")], align=True)
REACHED = np.dtype(
    [
        ("state", "i4"),
        ("node", "i4"),
        ("back", "i4"),
        ("tid", "i4"),
        ("next", "i4"),
        ("graph", "i8"),
        ("acoustic", "i8"),
    ],
    align=True,
)
ELEMENT = np.dtype([("state", "i4"), ("node", "i4"), ("graph", "i8"), ("acoustic", "i8"), ("hash", "u8")])
SET = np.dtype(
    [
        ("key", "u8"),
        ("begin", "i8"),
        ("end", "i8"),
        ("graph", "i8"),
        ("acoustic", "i8"),
        ("state", "i4"),
        ("arc", "i4"),
        ("num_labels", "i4"),
    ],
    align=True,
)
STATE = np.dtype(
    [
        ("cost", "i8"),
        ("final_graph", "i8"),
        ("final_acoustic", "i8"),
        ("set", "i4"),
        ("prefix", "i4"),
        ("final", "i4"),
    ],
    align=True,
)
STEP = np.dtype([("element", "i4"), ("arc", "i4")])
TASK = np.dtype([("begin", "i8"), ("end", "i8"), ("state", "i4"), ("word", "i4")])
ARC = np.dtype(
    [
        ("source", "i4"),
        ("target", "i4"),
        ("word", "i4"),
        ("graph", "i8"),
        ("acoustic", "i8"),
        ("begin", "i8"),
        ("end", "i8"),
    ],
    align=True,
)

NODES, ELEMENTS, SETS, STATES, STEPS, TASKS, ARCS, STRINGS, QUEUED, NUM_REACHED = range(10)
BASE = np.uint64(0x9E3779B97F4A7C15)

_ENTRIES_PER_ARC = {
    "nodes": 2.0,
    "elements": 0.75,
    "sets": 0.05,
    "states": 0.02,
    "steps": 0.4,
    "tasks": 0.1,
    "arcs": 0.05,
    "strings": 1.5,
}
BYTES_PER_ARC = 100

Pools = namedtuple(
    "Pools",
    "nodes elements sets states steps tasks arcs strings queue table where reached agenda kept counts powers",
)
Pools.__doc__ = """All pools; counts[NODES] and so on are the numbers of entries in use.

nodes     NODE: the string of `parent` followed by `tid`, `depth` labels in total; node 0 is the empty string
elements  ELEMENT: costs minus those of the set's best element, the string's node, the hash of the string
          without the set's common prefix
sets      SET: elements begin:end. Closed sets are states. A set before its closure stores the first arc that
          led to it, its state, and the costs and number of labels that the closure added to the common ones.
states    STATE: cost of the best path to it; node of the elements' common prefix; final costs and the final
          string's node, -1 if not final
steps     STEP: an element and a word arc of its raw state
tasks     TASK: steps begin:end with the same word, out of a state
arcs      ARC: an arc of the result, with labels begin:end of `strings`
queue     int64 (n, 2), a heap of (cost of the best path, task)
table     int32, hash table of sets by their keys; -1: empty slot
reached   REACHED: the raw states reached by the current task, with the best path so far: from `back` by
          `tid`, or the string `node` if >= 0
where     int32 (raw states): index in `reached`, valid if that entry is for this raw state
agenda    int64 (n, 2), a heap of (raw state, index in `reached`)
kept      int64 (n), indices of the elements of the set
powers    uint64: powers of BASE
"""


def new_pools(num_raw_states: int, num_frames: int, size: float) -> Pools:
    """Pools with only the empty string, for about `size` arcs of a raw lattice. num_frames: length of the
    longest string.

    They take about BYTES_PER_ARC * size bytes, most of which the system allocates only when they are written.
    """

    def empty(name, dtype):
        return np.empty(int(_ENTRIES_PER_ARC[name] * size) + 64, dtype)

    powers = np.full(num_frames + 2, BASE)
    powers[0] = 1
    counts = np.zeros(NUM_REACHED + 1, np.int64)
    counts[NODES] = 1
    nodes, tasks = empty("nodes", NODE), empty("tasks", TASK)
    nodes[0] = (-1, 0, 0, 0)
    sets = empty("sets", SET)
    table = np.full(1 << int(2 * len(sets)).bit_length(), -1, np.int32)
    return Pools(
        nodes,
        empty("elements", ELEMENT),
        sets,
        empty("states", STATE),
        empty("steps", STEP),
        tasks,
        empty("arcs", ARC),
        empty("strings", np.int32),
        np.empty((len(tasks), 2), np.int64),
        table,
        np.zeros(num_raw_states, np.int32),
        np.empty(num_raw_states, REACHED),
        np.empty((num_raw_states, 2), np.int64),
        np.empty(num_raw_states, np.int64),
        counts,
        np.multiply.accumulate(powers),
    )


@njit(nogil=True, cache=True)
def has_room(pools, num_nodes, num_elements, num_steps, num_labels):
    """Whether the pools have room for these numbers of entries, two sets, a state, an arc, and a task for
    each step."""
    counts = pools.counts
    return (
        counts[NODES] + num_nodes <= len(pools.nodes)
        and counts[ELEMENTS] + num_elements <= len(pools.elements)
        and counts[STEPS] + num_steps <= len(pools.steps)
        and counts[TASKS] + num_steps <= len(pools.tasks)
        and counts[STRINGS] + num_labels <= len(pools.strings)
        and counts[SETS] + 2 <= len(pools.sets)
        and counts[STATES] < len(pools.states)
        and counts[ARCS] < len(pools.arcs)
    )


@njit(nogil=True, cache=True)
def push(heap, size, key, value):
    """Insert (key, value) into a heap of `size` rows, smallest first."""
    i = size
    while i > 0:
        above = (i - 1) >> 1
        if heap[above, 0] < key or (heap[above, 0] == key and heap[above, 1] < value):
            break
        heap[i, 0], heap[i, 1] = heap[above, 0], heap[above, 1]
        i = above
    heap[i, 0], heap[i, 1] = key, value


@njit(nogil=True, cache=True)
def pop(heap, size):
    """Remove the first of a heap's `size` rows and return its value."""
    first, key, value, last = heap[0, 1], heap[size - 1, 0], heap[size - 1, 1], size - 1
    i, below = 0, 1
    while below < last:
        right = below + 1
        if right < last and (
            heap[right, 0] < heap[below, 0]
            or (heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1])
        ):
            below = right
        if key < heap[below, 0] or (key == heap[below, 0] and value < heap[below, 1]):
            break
        heap[i, 0], heap[i, 1] = heap[below, 0], heap[below, 1]
        i, below = below, 2 * below + 1
    heap[i, 0], heap[i, 1] = key, value
    return first


@njit(nogil=True, cache=True)
def mixed(x):
    """A uint64 each of whose bits depends on every bit of `x` (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def child(pools, node, tid):
    """The node of the string of `node` followed by `tid` (0: none)."""
    if tid == 0:
        return node
    nodes, new = pools.nodes, pools.counts[NODES]
    pools.counts[NODES] = new + 1
    nodes[new].parent, nodes[new].tid, nodes[new].depth = node, tid, nodes[node].depth + 1
    nodes[new].hash = nodes[node].hash * BASE + mixed(np.uint64(tid))
    return np.int32(new)


@njit(nogil=True, cache=True)
def node_of(pools, e):
    """The node of the string of element `e` of `reached`; also creates the nodes of the elements on the path
    to it."""
    reached, top, below = pools.reached, e, np.int32(-1)
    while reached[top].node < 0:
        reached[top].next = below
        top, below = reached[top].back, top
    node = reached[top].node
    while below >= 0:
        node = child(pools, node, reached[below].tid)
        reached[below].node = node
        below = reached[below].next
    return node


@njit(nogil=True, cache=True)
def common_prefix(nodes, a, b):
    """A node whose string is the longest common prefix of two nodes' strings."""
    while nodes[a].depth > nodes[b].depth:
        a = nodes[a].parent
    while nodes[b].depth > nodes[a].depth:
        b = nodes[b].parent
    while nodes[a].hash != nodes[b].hash:
        a, b = nodes[a].parent, nodes[b].parent
    return a


@njit(nogil=True, cache=True)
def tail_hash(pools, prefix, node):
    """Hash of the string of `node` without its prefix, the string of `prefix`."""
    nodes = pools.nodes
    return nodes[node].hash - nodes[prefix].hash * pools.powers[nodes[node].depth - nodes[prefix].depth]


@njit(nogil=True, cache=True)
def string_is_better(nodes, a, b):
    """Whether string `a` is preferred to `b` at equal costs: the shorter string, then the larger first
    differing transition-id."""
    if nodes[a].depth != nodes[b].depth:
        return nodes[a].depth < nodes[b].depth
    if nodes[a].hash == nodes[b].hash:
        return False
    while nodes[nodes[a].parent].hash != nodes[nodes[b].parent].hash:
        a, b = nodes[a].parent, nodes[b].parent
    return nodes[a].tid > nodes[b].tid


@njit(nogil=True, cache=True)
def order(graph, acoustic, other_graph, other_acoustic):
    """1 if the first pair of costs is better than the other, -1 if worse, 0 if equal: by their sum, then by
    the graph cost."""
    difference = graph + acoustic - other_graph - other_acoustic
    if difference == 0:
        difference = graph - other_graph
    return 1 if difference < 0 else -1 if difference > 0 else 0


@njit(nogil=True, cache=True)
def equal_elements(elements, a, b, count, delta):
    """Whether `count` elements from `a` on equal those from `b` on in raw states, strings, and costs within
    `delta`."""
    for i in range(count):
        one, other = elements[a + i], elements[b + i]
        if (
            one.state != other.state
            or one.hash != other.hash
            or abs(one.graph - other.graph) > delta
            or (abs(one.graph + one.acoustic - other.graph - other.acoustic) > delta)
        ):
            return False
    return True


@njit(nogil=True, cache=True)
def find_set(pools, key, count, delta):
    """(the set equal to the `count` elements after the pool's end, or -1; its slot in the table)."""
    table, sets = pools.table, pools.sets
    mask = np.uint64(len(table) - 1)
    slot = key & mask
    while table[slot] >= 0:
        s = table[slot]
        if (
            sets[s].key == key
            and sets[s].end - sets[s].begin == count
            and equal_elements(pools.elements, sets[s].begin, pools.counts[ELEMENTS], count, delta)
        ):
            return s, slot
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1), slot


@njit(nogil=True, cache=True)
def add_set(pools, key, count, slot):
    """Add the set of the `count` elements after the pool's end."""
    counts = pools.counts
    s, begin = np.int32(counts[SETS]), counts[ELEMENTS]
    counts[SETS], counts[ELEMENTS] = s + 1, begin + count
    pools.sets[s].key, pools.sets[s].begin, pools.sets[s].end = key, begin, begin + count
    pools.table[slot] = s
    return s


@njit(nogil=True, cache=True)
def final_strings(nodes, states):
    """(offsets, transition-ids) of the final strings of all states."""
    offsets = np.zeros(len(states) + 1, np.int64)
    for q in range(len(states)):
        final = states[q].final
        offsets[q + 1] = offsets[q] + (
            nodes[final].depth - nodes[states[q].prefix].depth if final >= 0 else 0
        )
    tids = np.empty(offsets[-1], np.int32)
    for q in range(len(states)):
        node = states[q].final
        for i in range(offsets[q + 1] - 1, offsets[q] - 1, -1):
            tids[i] = nodes[node].tid
            node = nodes[node].parent
    return offsets, tids
