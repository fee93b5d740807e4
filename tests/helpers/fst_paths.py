"""Costs of paths by exhaustive search in plain Python: the reference for tests of transducers."""

from __future__ import annotations

from collections import deque

import numpy as np

from pyasr.io.openfst import Fst


def best_cost(fst: Fst, ilabels=None, olabels=None) -> float:
    """The minimum cost of a path with these labels, ignoring epsilons; None allows any labels. inf if there
    is no such path."""
    ilabels, olabels = (None if labels is None else list(labels) for labels in (ilabels, olabels))
    begin = (fst.start, 0, 0)
    costs, queue, best = {begin: 0.0}, deque([begin]), float("inf")
    offsets, arcs = fst.arc_offsets.tolist(), (fst.ilabels, fst.olabels, fst.weights, fst.nextstates)
    while queue:
        here = queue.popleft()
        state, i, o = here
        cost = costs[here]
        if (ilabels is None or i == len(ilabels)) and (olabels is None or o == len(olabels)):
            best = min(best, cost + float(fst.finals[state]))
        for a in range(offsets[state], offsets[state + 1]):
            ilabel, olabel, weight, target = (array[a] for array in arcs)
            next_i, next_o = _step(ilabels, i, ilabel), _step(olabels, o, olabel)
            if next_i is None or next_o is None:
                continue
            there = (int(target), next_i, next_o)
            if cost + float(weight) < costs.get(there, float("inf")) - 1e-6:
                costs[there] = cost + float(weight)
                queue.append(there)
    return best


def _step(labels, position, label):
    if labels is None or label == 0:
        return position
    return position + 1 if position < len(labels) and labels[position] == label else None


def composed_cost(left: Fst, right: Fst, ilabels: list[int], olabels: list[int]) -> float:
    """The minimum cost of a path of `left` over `ilabels` and one of `right` over `olabels` with the same
    labels between them."""
    begin = (left.start, right.start, 0, 0)
    costs, queue, best = {begin: 0.0}, deque([begin]), float("inf")
    while queue:
        here = queue.popleft()
        state_l, state_r, i, o = here
        if i == len(ilabels) and o == len(olabels):
            best = min(best, costs[here] + float(left.finals[state_l] + right.finals[state_r]))
        for ilabel, label, cost_l, next_l in _arcs(left, state_l):
            if ilabel and (i == len(ilabels) or ilabels[i] != ilabel):
                continue
            for label_r, olabel, cost_r, next_r in _arcs(right, state_r) if label else [(0, 0, 0.0, state_r)]:
                if label_r == label and (not olabel or (o < len(olabels) and olabels[o] == olabel)):
                    there = (next_l, next_r, i + (ilabel > 0), o + (olabel > 0))
                    cost = costs[here] + cost_l + cost_r
                    if cost < costs.get(there, float("inf")):
                        costs[there] = cost
                        queue.append(there)
    return best


def _arcs(fst: Fst, state: int):
    here = slice(fst.arc_offsets[state], fst.arc_offsets[state + 1])
    return zip(*(array[here].tolist() for array in (fst.ilabels, fst.olabels, fst.weights, fst.nextstates)))


def random_path(fst: Fst, rng: np.random.Generator, max_arcs: int = 200, stop: float = 0.3):
    """(input labels, output labels, cost) of a random walk to a final state, without epsilons; None if it
    does not reach one."""
    state, ilabels, olabels, cost = fst.start, [], [], 0.0
    for _ in range(max_arcs):
        begin, end = fst.arc_offsets[state], fst.arc_offsets[state + 1]
        if np.isfinite(fst.finals[state]) and (begin == end or rng.random() < stop):
            return ilabels, olabels, cost + float(fst.finals[state])
        if begin == end:
            return None
        a = int(rng.integers(begin, end))
        ilabels += [int(fst.ilabels[a])] * bool(fst.ilabels[a])
        olabels += [int(fst.olabels[a])] * bool(fst.olabels[a])
        cost += float(fst.weights[a])
        state = int(fst.nextstates[a])
    return None


def random_paths(fst: Fst, num: int, seed: int = 0, stop: float = 0.3) -> list:
    """`num` random paths."""
    rng = np.random.default_rng(seed)
    walks = (random_path(fst, rng, stop=stop) for _ in range(100 * num))
    return [walk for walk in walks if walk is not None][:num]
