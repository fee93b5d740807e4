"""Random decoding graphs and an exhaustive search over them, for the decoder's tests."""

from __future__ import annotations

import numpy as np

from pyasr.io.openfst import Fst


def tid2pdf(num_pdfs: int) -> np.ndarray:
    """Two transition-ids per pdf; entry 0 unused."""
    return np.concatenate([[-1], np.repeat(np.arange(num_pdfs), 2)]).astype(np.int32)


def random_graph(rng, num_states: int, num_arcs: int, num_pdfs: int, *, cycles: bool = False) -> Fst:
    """Arcs between random states with positive costs. One arc in five is epsilon; without `cycles`, epsilon
    arcs lead to higher states."""
    sources = np.concatenate([np.arange(num_states), rng.integers(0, num_states, num_arcs - num_states)])
    targets = rng.integers(0, num_states, num_arcs)
    ilabels = rng.integers(1, 2 * num_pdfs + 1, num_arcs)
    silent = rng.random(num_arcs) < 0.2
    silent[:num_states] = False
    if not cycles:
        silent &= targets > sources
    ilabels[silent] = 0
    olabels = np.where(rng.random(num_arcs) < 0.4, rng.integers(1, 6, num_arcs), 0)
    finals = np.where(rng.random(num_states) < 0.3, rng.random(num_states), np.inf)
    return Fst.from_arcs(
        num_states, 0, sources, ilabels, olabels, rng.random(num_arcs) + 0.05, targets, finals
    )


def all_paths(
    fst: Fst, loglikes: np.ndarray, pdfs: np.ndarray, scale: float, limit: float, use_final: bool = True
) -> dict:
    """All paths through the frames of `loglikes` of total cost up to `limit` that enter no state twice
    between two frames.

    {(ilabels, olabels, both with epsilons): [(graph cost, acoustic cost), ...] sorted}
    """
    found: dict = {}

    def extend(state, frame, graph, acoustic, ins, outs, visited):
        if graph + scale * acoustic > limit + 100:
            return
        if frame == len(loglikes):
            end = fst.finals[state] if use_final else 0.0
            if np.isfinite(end) and graph + end + scale * acoustic <= limit:
                found.setdefault((ins, outs), []).append((float(graph + end), float(acoustic)))
        for a in range(fst.arc_offsets[state], fst.arc_offsets[state + 1]):
            target = int(fst.nextstates[a])
            label = int(fst.ilabels[a])
            word = int(fst.olabels[a])
            weight = float(fst.weights[a])
            if label == 0 and target not in visited:
                extend(target, frame, graph + weight, acoustic, (*ins, 0), (*outs, word), visited | {target})
            elif label and frame < len(loglikes):
                cost = -float(loglikes[frame, pdfs[label]])
                extend(
                    target, frame + 1, graph + weight, acoustic + cost, (*ins, label), (*outs, word), {target}
                )

    extend(fst.start, 0, 0.0, 0.0, (), (), {fst.start})
    return {key: sorted(costs) for key, costs in found.items()}


def lattice_paths(lattice) -> dict:
    """Every path of a lattice, in the form of `all_paths`."""
    found: dict = {}
    offsets = lattice.arc_offsets

    def extend(state, graph, acoustic, ins, outs):
        if np.isfinite(lattice.final_graph[state]):
            total = (
                graph + float(lattice.final_graph[state]),
                acoustic + float(lattice.final_acoustic[state]),
            )
            found.setdefault((ins, outs), []).append(total)
        for a in range(offsets[state], offsets[state + 1]):
            extend(
                int(lattice.targets[a]),
                graph + float(lattice.graph_costs[a]),
                acoustic + float(lattice.acoustic_costs[a]),
                (*ins, int(lattice.ilabels[a])),
                (*outs, int(lattice.olabels[a])),
            )

    if not lattice.empty:
        extend(0, 0.0, 0.0, (), ())
    return {key: sorted(costs) for key, costs in found.items()}


def plain(paths: dict) -> list:
    """(tids, words, costs) of all paths, without epsilons, with costs rounded to the precision of float32."""
    return sorted(
        (tuple(t for t in tids if t), tuple(w for w in words if w), round(graph, 3), round(acoustic, 2))
        for (tids, words), costs in paths.items()
        for graph, acoustic in costs
    )


def compact_paths(lattice) -> list:
    """Like `plain`, by a traversal of the compact lattice itself."""
    found = []

    def walk(state, tids, words, graph, acoustic):
        if np.isfinite(lattice.final_graph[state]):
            found.append(
                (
                    tids + tuple(lattice.final_string(state).tolist()),
                    words,
                    round(graph + float(lattice.final_graph[state]), 3),
                    round(acoustic + float(lattice.final_acoustic[state]), 2),
                )
            )
        for a in np.flatnonzero(lattice.sources == state):
            word = (int(lattice.words[a]),) if lattice.words[a] else ()
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


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and np.allclose(a[2:], b[2:], atol=0.02) for a, b in zip(one, other)
    )
