"""Lattices as numpy arrays: best path, pruning, and a sweep of the best words over LM weights and word
insertion penalties.

A lattice is an acyclic transducer. Each arc has a transition-id (input), a word (output), a graph cost and an
unscaled acoustic cost; label 0 is epsilon. The cost of a path at acoustic scale k is the sum of graph + k *
acoustic over its arcs and its final state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError

_Weight = TypeVar("_Weight", bound=float)


@dataclass(frozen=True)
class DecodeStats:
    """Statistics of the search of an utterance: input frames, decoded frames, tokens over all frames, peak
    number of links, CPU seconds.

    determinize_s  CPU seconds of the determinisation
    narrowed_beam  the lattice beam that the determinisation was narrowed to; None if it was not
    """

    num_frames: int
    num_decoded: int
    num_tokens: int
    peak_links: int
    cpu_s: float
    determinize_s: float = 0.0
    narrowed_beam: float | None = None


@dataclass(frozen=True)
class Path:
    """A path of a lattice: words and transition-ids without epsilons; its costs, including final costs."""

    words: list[int]
    tids: np.ndarray
    graph_cost: float
    acoustic_cost: float


class States:
    """Properties shared by both kinds of lattices; `final_graph` has an element for each state, `sources` for
    each arc."""

    final_graph: np.ndarray
    sources: np.ndarray

    @property
    def num_states(self) -> int:
        return len(self.final_graph)

    @property
    def num_arcs(self) -> int:
        return len(self.sources)

    @property
    def empty(self) -> bool:
        return self.num_states == 0

    @property
    def arc_offsets(self) -> np.ndarray:
        """int64 (num_states + 1): arcs of state s are arc_offsets[s]:arc_offsets[s + 1]."""
        return np.searchsorted(self.sources, np.arange(self.num_states + 1))


@dataclass(frozen=True)
class Lattice(States):
    """Arcs sorted by source; states in topological order (every arc goes to a higher number), state 0 is the
    start.

    sources, targets                int32 (num_arcs)
    ilabels, olabels                int32 (num_arcs): transition-ids, words
    graph_costs, acoustic_costs     float32 (num_arcs)
    final_graph, final_acoustic     float32 (num_states), inf if a state is not final
    reached_final                   False if the search ended outside the graph's final states, so that the
                                    end of the hypothesis is uncertain
    """

    sources: np.ndarray
    targets: np.ndarray
    ilabels: np.ndarray
    olabels: np.ndarray
    graph_costs: np.ndarray
    acoustic_costs: np.ndarray
    final_graph: np.ndarray
    final_acoustic: np.ndarray
    reached_final: bool = True
    stats: DecodeStats | None = None

    @property
    def words(self) -> np.ndarray:
        """The words of the arcs, under the name that CompactLattice uses."""
        return self.olabels

    @property
    def state_times(self) -> np.ndarray:
        """Frame of each state, int64 (num_states): transition-ids on the longest path to it (all paths, in a
        decoder's lattice)."""
        return _times(self.sources, self.targets, self.ilabels, self.num_states)

    @property
    def num_frames(self) -> int:
        """Frames of the longest path."""
        return int(self.state_times.max(initial=0))

    @property
    def depth(self) -> float:
        """Mean number of arcs with a transition-id per frame, as computed by Kaldi's lattice-depth on a
        state-level lattice."""
        return float((self.ilabels != 0).sum()) / max(self.num_frames, 1)

    def path(self, arcs: np.ndarray, end: int) -> Path:
        """The path along `arcs` that ends in the final state `end`."""
        words, tids = self.olabels[arcs], self.ilabels[arcs]
        return Path(words[words != 0].tolist(), tids[tids != 0], *path_costs(self, arcs, end))

    def select(self, keep: np.ndarray, final: np.ndarray) -> Lattice:
        """The arcs and final states selected by the bool arrays, states renumbered; states without a kept arc
        are dropped, except 0."""
        used, number = kept_states(self, keep)
        names = ("ilabels", "olabels", "graph_costs", "acoustic_costs")
        return replace(
            self,
            sources=number[self.sources[keep]],
            targets=number[self.targets[keep]],
            **{name: getattr(self, name)[keep] for name in names},
            **{
                name: np.where(final, getattr(self, name), np.float32(np.inf))[used]
                for name in ("final_graph", "final_acoustic")
            },
        )


def from_arcs(
    start: int,
    sources,
    targets,
    ilabels,
    olabels,
    graph_costs,
    acoustic_costs,
    final_graph,
    final_acoustic=None,
    *,
    reached_final: bool = True,
    name: str = "lattice",
) -> Lattice:
    """Build a Lattice from arcs and states in any order, without states unreachable from `start`. Raises
    UserError for a cycle."""
    final_graph = np.asarray(final_graph, np.float32)
    if final_acoustic is None:
        final_acoustic = np.where(np.isfinite(final_graph), 0, np.inf).astype(np.float32)
    sources, targets = np.asarray(sources, np.int32), np.asarray(targets, np.int32)
    ilabels, olabels = np.asarray(ilabels, np.int32), np.asarray(olabels, np.int32)
    graph_costs, acoustic_costs = np.asarray(graph_costs, np.float32), np.asarray(acoustic_costs, np.float32)
    rank, num_kept = ranks(start, sources, targets, len(final_graph), name)
    sources, targets = rank[sources], rank[targets]
    order = np.argsort(sources, kind="stable")
    order = order[np.searchsorted(sources[order], 0) :]
    kept = np.flatnonzero(rank >= 0)
    finals = np.full((2, num_kept), np.inf, np.float32)
    finals[0, rank[kept]] = final_graph[kept]
    finals[1, rank[kept]] = np.asarray(final_acoustic, np.float32)[kept]
    return Lattice(
        sources[order],
        targets[order],
        ilabels[order],
        olabels[order],
        graph_costs[order],
        acoustic_costs[order],
        finals[0],
        finals[1],
        bool(reached_final),
    )


def ranks(
    start: int, sources: np.ndarray, targets: np.ndarray, num_states: int, name: str
) -> tuple[np.ndarray, int]:
    """(index of each state in a topological order, -1 for states unreachable from `start`; number of
    reachable states).

    The order is unchanged if it is topological already. Raises UserError for a cycle.
    """
    if start == 0 and (targets > sources).all() and len(np.unique(targets)) == num_states - 1:
        return np.arange(num_states, dtype=np.int32), num_states
    rank, num_kept, acyclic = _top_sort(start, sources, targets, num_states)
    if not acyclic:
        raise UserError(f"{name}: the lattice has a cycle, which no decoder writes; decode again")
    return rank, num_kept


@njit(nogil=True, cache=True)
def _top_sort(start, sources, targets, num_states):
    """(rank of each state, -1 for states unreachable from `start`; number of ranked states; whether there is
    no cycle)."""
    offsets = np.zeros(num_states + 1, np.int64)
    for s in sources:
        offsets[s + 1] += 1
    for s in range(num_states):
        offsets[s + 1] += offsets[s]
    at = offsets[:-1].copy()
    arcs = np.empty(len(sources), np.int32)
    for k in range(len(sources)):
        arcs[at[sources[k]]] = targets[k]
        at[sources[k]] += 1
    rank = np.full(num_states, -1, np.int32)
    if num_states == 0 or start < 0:
        return rank, 0, True
    num_in = np.zeros(num_states, np.int64)
    seen = np.zeros(num_states, np.bool_)
    stack = np.empty(num_states, np.int32)
    stack[0], seen[start], size, num_seen = start, True, 1, 1
    while size:
        size -= 1
        s = stack[size]
        for k in range(offsets[s], offsets[s + 1]):
            num_in[arcs[k]] += 1
            if not seen[arcs[k]]:
                seen[arcs[k]] = True
                stack[size] = arcs[k]
                size += 1
                num_seen += 1
    if num_in[start]:
        return rank, 0, False
    queue = stack
    queue[0], size, head = start, 1, 0
    while head < size:
        s = queue[head]
        rank[s] = head
        head += 1
        for k in range(offsets[s], offsets[s + 1]):
            num_in[arcs[k]] -= 1
            if num_in[arcs[k]] == 0:
                queue[size] = arcs[k]
                size += 1
    return rank, size, size == num_seen


@njit(nogil=True, cache=True)
def _times(sources, targets, ilabels, num_states):
    """Frame of each state: the maximum number of transition-ids on a path to it."""
    times = np.zeros(num_states, np.int64)
    for k in range(len(sources)):
        times[targets[k]] = max(times[targets[k]], times[sources[k]] + (ilabels[k] != 0))
    return times


def scaled_costs(lattice, acoustic_scale: float, lm_scale: float = 1.0):
    """(costs of arcs, costs of final states) of a Lattice or CompactLattice, float64."""
    arcs = lm_scale * lattice.graph_costs.astype(np.float64) + acoustic_scale * lattice.acoustic_costs.astype(
        np.float64
    )
    finals = np.full(lattice.num_states, np.inf)
    final = np.isfinite(lattice.final_graph)
    finals[final] = (
        lm_scale * lattice.final_graph[final].astype(np.float64)
        + acoustic_scale * lattice.final_acoustic[final]
    )
    return arcs, finals


@njit(nogil=True, cache=True)
def forward(sources, targets, costs, num_states):
    """(lowest cost from the start, last arc of that path) of each state."""
    alpha, back = np.full(num_states, np.inf), np.full(num_states, -1, np.int32)
    alpha[0] = 0.0
    for k in range(len(sources)):
        cost = alpha[sources[k]] + costs[k]
        if cost < alpha[targets[k]]:
            alpha[targets[k]], back[targets[k]] = cost, k
    return alpha, back


@njit(nogil=True, cache=True)
def backward(sources, targets, costs, finals):
    """Lowest cost from each state to the end."""
    beta = finals.copy()
    for k in range(len(sources) - 1, -1, -1):
        beta[sources[k]] = min(beta[sources[k]], costs[k] + beta[targets[k]])
    return beta


def path_costs(lattice, arcs: np.ndarray, end: int) -> tuple[float, float]:
    """(graph cost, acoustic cost) of the path along `arcs` to the final state `end`."""
    graph = lattice.graph_costs[arcs].sum(dtype=np.float64) + lattice.final_graph[end]
    acoustic = lattice.acoustic_costs[arcs].sum(dtype=np.float64) + lattice.final_acoustic[end]
    return float(graph), float(acoustic)


def best_arcs(lattice, acoustic_scale: float, lm_scale: float = 1.0) -> tuple[np.ndarray, int] | None:
    """(arcs, final state) of the path of lowest cost of a Lattice or CompactLattice; None if there is no
    path."""
    if lattice.empty:
        return None
    costs, finals = scaled_costs(lattice, acoustic_scale, lm_scale)
    alpha, back = forward(lattice.sources, lattice.targets, costs, lattice.num_states)
    state = int(np.argmin(alpha + finals))
    return (
        (trace(back[:, None], 0, lattice.sources, state), state)
        if np.isfinite(alpha[state] + finals[state])
        else None
    )


def best_path(lattice, acoustic_scale: float, lm_scale: float = 1.0) -> Path | None:
    """The path of lowest cost of a Lattice or CompactLattice; None if there is no path."""
    found = best_arcs(lattice, acoustic_scale, lm_scale)
    return found and lattice.path(*found)


@njit(nogil=True, cache=True)
def trace(back, point, sources, state):
    """Arcs, in order, of the best path to `state` at one point. back: last arc (num_states, num_points), -1
    at the start."""
    count, s = 0, state
    while back[s, point] >= 0:
        s = sources[back[s, point]]
        count += 1
    arcs = np.empty(count, np.int64)
    while count:
        count -= 1
        arcs[count] = back[state, point]
        state = sources[back[state, point]]
    return arcs


def prune(lattice, beam: float, acoustic_scale: float):
    """The Lattice or CompactLattice restricted to states and arcs on a path whose cost is within `beam` of
    the best path's."""
    if lattice.empty:
        return lattice
    costs, finals = scaled_costs(lattice, acoustic_scale)
    alpha, _ = forward(lattice.sources, lattice.targets, costs, lattice.num_states)
    beta = backward(lattice.sources, lattice.targets, costs, finals)
    limit = beta[0] + beam + 1e-9 * abs(beta[0])
    return lattice.select(
        alpha[lattice.sources] + costs + beta[lattice.targets] <= limit, alpha + finals <= limit
    )


def trim(lattice):
    """The Lattice or CompactLattice without states that do not lead to the end."""
    if lattice.empty:
        return lattice
    costs, finals = scaled_costs(lattice, 1.0)
    return lattice.select(
        np.isfinite(backward(lattice.sources, lattice.targets, costs, finals)[lattice.targets]),
        np.isfinite(finals),
    )


def has_end(lattice) -> bool:
    """Whether a Lattice or CompactLattice has a final state; a trimmed lattice then has a path."""
    return bool(np.isfinite(lattice.final_graph).any())


def kept_states(lattice, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bool (num_states): the start and the states with an arc in `keep`; int32 (num_states): their new
    numbers)."""
    used = np.zeros(lattice.num_states, bool)
    used[lattice.sources[keep]] = used[lattice.targets[keep]] = True
    used[:1] = True
    return used, np.cumsum(used, dtype=np.int32) - 1


def sweep(
    lattice, lm_weights: Sequence[_Weight], penalties: Sequence[float]
) -> dict[tuple[_Weight, float], list[int]]:
    """The best words of a Lattice or CompactLattice for every pair of LM weight and word insertion penalty:
    {(lmwt, wip): [word ids]}.

    At (lmwt, wip) a path costs graph + acoustic / lmwt + wip * words: Kaldi's lattice-scale
    --inv-acoustic-scale=lmwt, lattice-add-penalty --word-ins-penalty=wip, lattice-best-path. One pass over
    the arcs serves all points.
    """
    found = {point: lattice.words[arcs] for point, arcs in sweep_arcs(lattice, lm_weights, penalties).items()}
    return {point: words[words != 0].tolist() for point, words in found.items()}


def sweep_arcs(
    lattice, lm_weights: Sequence[_Weight], penalties: Sequence[float]
) -> dict[tuple[_Weight, float], np.ndarray]:
    """The arcs of the best paths of `sweep`, in order: {(lmwt, wip): int64}; empty arrays if the lattice has
    no path."""
    points, none = [(lmwt, wip) for lmwt in lm_weights for wip in penalties], np.empty(0, np.int64)
    ends = np.flatnonzero(np.isfinite(lattice.final_graph))
    if not len(ends):
        return dict.fromkeys(points, none)
    inverse = np.array([1.0 / lmwt for lmwt, _ in points])
    penalty = np.array([wip for _, wip in points], np.float64)
    costs, back = _sweep(
        lattice.sources,
        lattice.targets,
        lattice.words,
        lattice.graph_costs,
        lattice.acoustic_costs,
        lattice.num_states,
        inverse,
        penalty,
    )
    totals = costs[ends] + lattice.final_graph[ends, None] + lattice.final_acoustic[ends, None] * inverse
    return {
        point: trace(back, p, lattice.sources, int(ends[np.argmin(totals[:, p])]))
        for p, point in enumerate(points)
    }


@njit(nogil=True, cache=True)
def _sweep(sources, targets, words, graph, acoustic, num_states, inverse, penalty):
    """(lowest cost, last arc of that path) of each state at each point: (num_states, num_points)."""
    num_points = len(inverse)
    costs = np.full((num_states, num_points), np.inf)
    back = np.full((num_states, num_points), -1, np.int32)
    costs[0] = 0.0
    for k in range(len(sources)):
        source, target = sources[k], targets[k]
        count = 1.0 if words[k] != 0 else 0.0
        for p in range(num_points):
            cost = costs[source, p] + (graph[k] + acoustic[k] * inverse[p] + penalty[p] * count)
            better = cost < costs[target, p]
            costs[target, p] = cost if better else costs[target, p]
            back[target, p] = k if better else back[target, p]
    return costs, back
