"""Small random word graphs and all their paths, for the tests of algorithms on words."""

from __future__ import annotations

import numpy as np

from pyasr.decode.lattices.compact_lattice import CompactLattice, compact_from_arcs
from pyasr.decode.lattices.word_graph import WordGraph


def random_word_graph(
    rng: np.random.Generator, num_states: int = 6, num_words: int = 4, epsilons: float = 0.2
) -> WordGraph:
    """Each state has an arc to a later and an arc from an earlier state; the last state is final, and
    possibly one more."""
    arcs = [
        (s, int(rng.integers(s + 1, num_states)))
        for s in range(num_states - 1)
        for _ in range(rng.integers(1, 4))
    ]
    arcs += [
        (int(rng.integers(0, t)), t) for t in range(1, num_states) if t not in {target for _, target in arcs}
    ]
    arcs.sort()
    sources, targets = np.ascontiguousarray(np.array(arcs, np.int32).T)
    words = np.where(rng.random(len(arcs)) < epsilons, 0, rng.integers(1, num_words + 1, len(arcs))).astype(
        np.int32
    )
    finals = np.where(np.arange(num_states) == num_states - 1, rng.random(), np.inf)
    if rng.random() < 0.5:
        finals[rng.integers(0, num_states)] = rng.random()
    times = np.sort(rng.integers(0, 50, num_states))
    times[0] = 0
    return WordGraph(sources, targets, words, 2 * rng.random(len(arcs)), finals, times, 50)


def paths(graph: WordGraph) -> list[tuple[tuple[int, ...], float]]:
    """(words, cost) of every path."""
    found, offsets = [], graph.arc_offsets

    def extend(state, words, cost):
        if np.isfinite(graph.finals[state]):
            found.append((words, cost + float(graph.finals[state])))
        for a in range(offsets[state], offsets[state + 1]):
            word = (int(graph.words[a]),) * bool(graph.words[a])
            extend(int(graph.targets[a]), words + word, cost + float(graph.costs[a]))

    extend(0, (), 0.0)
    return found


def as_tree(graph: WordGraph) -> WordGraph:
    """The same paths with one state for each path prefix."""
    offsets = graph.arc_offsets
    arcs, finals, times, queue = [], [graph.finals[0]], [0], [(0, 0)]
    for state, mine in queue:
        for a in range(offsets[state], offsets[state + 1]):
            target = int(graph.targets[a])
            arcs.append((mine, len(finals), graph.words[a], graph.costs[a]))
            queue.append((target, len(finals)))
            finals.append(graph.finals[target])
            times.append(graph.times[target])
    sources, targets, words, costs = (np.array(column) for column in zip(*arcs))
    return WordGraph(
        sources.astype(np.int32),
        targets.astype(np.int32),
        words.astype(np.int32),
        costs,
        np.array(finals),
        np.array(times),
        graph.num_frames,
    )


def edit_distance(one, other) -> int:
    """Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j - 1] + (a != b), before[j] + 1, row[-1] + 1))
    return row[-1]


def expected_errors(found, words) -> float:
    """Expected edit distance between `words` and the paths (words, cost) `found`, weighted by exp(-cost)."""
    weights = np.exp(-np.array([cost for _, cost in found]))
    return float(sum(w * edit_distance(words, path) for w, (path, _) in zip(weights / weights.sum(), found)))


def random_compact(rng: np.random.Generator, **options) -> CompactLattice:
    """A random word graph as a compact lattice: graph and acoustic costs, and unique strings of up to three
    transition-ids per arc."""
    graph = random_word_graph(rng, **options)
    num_arcs, num_states = len(graph.words), graph.num_states
    lengths = rng.integers(0, 4, num_arcs + num_states)
    lengths[num_arcs:] *= np.isfinite(graph.finals)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    tids = 1 + np.arange(ends[-1], dtype=np.int32)
    acoustic = 100 * rng.random(num_arcs)
    ends_acoustic = np.where(np.isfinite(graph.finals), 10.0, np.inf)
    return compact_from_arcs(
        0,
        graph.sources,
        graph.targets,
        graph.words,
        graph.costs,
        acoustic,
        (ends[: num_arcs + 1], tids),
        graph.finals,
        ends_acoustic,
        final_strings=(ends[num_arcs:], tids),
    )


def compact_paths(lattice: CompactLattice) -> list:
    """(transition-ids, words, graph cost, acoustic cost) of every path, sorted."""
    found, offsets = [], lattice.arc_offsets

    def walk(state, tids, words, graph, acoustic):
        if np.isfinite(lattice.final_graph[state]):
            found.append(
                (
                    tids + tuple(lattice.final_string(state).tolist()),
                    words,
                    graph + float(lattice.final_graph[state]),
                    acoustic + float(lattice.final_acoustic[state]),
                )
            )
        for a in range(offsets[state], offsets[state + 1]):
            word = (int(lattice.words[a]),) * bool(lattice.words[a])
            walk(
                int(lattice.targets[a]),
                tids + tuple(lattice.string(a).tolist()),
                words + word,
                graph + float(lattice.graph_costs[a]),
                acoustic + float(lattice.acoustic_costs[a]),
            )

    if not lattice.empty:
        walk(0, (), (), 0.0, 0.0)
    return sorted(found)
