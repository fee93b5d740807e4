"""Bottom-up clustering of a tree's leaves: repeatedly merge the pair within a group that loses the least
log-likelihood."""

from __future__ import annotations

import heapq

import numpy as np

from pyasr.hmm.trees.tree_stats import log_likelihood


def cluster_leaves(
    sums: np.ndarray, groups: np.ndarray, merge_below: float, round_to: int, var_floor: float
) -> np.ndarray:
    """The cluster of each leaf, numbered in order of first appearance: int64 (n).

    sums         (n, 1 + 2 D), the leaves' statistics
    groups       (n), only leaves of the same group are merged
    merge_below  merges must lose less than this ...
    round_to     ... unless the number of clusters is larger than `round_to` and not a multiple of it
    """
    clusters = _Clusters(sums, groups, var_floor)
    while clusters.heap:
        loss, one, two = heapq.heappop(clusters.heap)
        if one not in clusters.alive or two not in clusters.alive:
            continue
        is_rounded = len(clusters.alive) % round_to == 0 or len(clusters.alive) < round_to
        if loss >= merge_below and is_rounded:
            break
        clusters.merge(one, two)
    return clusters.numbers()


class _Clusters:
    """alive: cluster -> its leaves, insertion-ordered; heap: (loss, one cluster, another), including clusters
    merged since."""

    def __init__(self, sums: np.ndarray, groups: np.ndarray, var_floor: float):
        self.var_floor = var_floor
        self.sums, self.group_of = list(sums), list(groups.tolist())
        self.alive = {i: [i] for i in range(len(sums))}
        self.members: dict[int, list[int]] = {}
        self.heap: list[tuple[float, int, int]] = []
        self.likelihoods = list(log_likelihood(sums, var_floor))
        for i, group in enumerate(self.group_of):
            self.heap += self._losses(i, self.members.setdefault(group, []))
            self.members[group].append(i)
        heapq.heapify(self.heap)

    def merge(self, one: int, two: int) -> None:
        """Replace clusters `one` and `two` of a group by their sum, which becomes the last cluster."""
        new, group = len(self.sums), self.group_of[one]
        self.sums.append(self.sums[one] + self.sums[two])
        self.likelihoods.append(float(log_likelihood(self.sums[new], self.var_floor)))
        self.group_of.append(group)
        self.alive[new] = self.alive.pop(one) + self.alive.pop(two)
        others = [i for i in self.members[group] if i not in (one, two)]
        for entry in self._losses(new, others):
            heapq.heappush(self.heap, entry)
        self.members[group] = [*others, new]

    def numbers(self) -> np.ndarray:
        """The cluster of each leaf, int64 (num_leaves,), numbered from 0 in order of first appearance."""
        cluster_of = np.zeros(len(self.likelihoods), np.int64)
        for cluster, leaves in self.alive.items():
            cluster_of[leaves] = cluster
        found, first, index = np.unique(
            cluster_of[: sum(map(len, self.alive.values()))], return_index=True, return_inverse=True
        )
        return np.argsort(np.argsort(first))[index]

    def _losses(self, one: int, others: list[int]) -> list[tuple[float, int, int]]:
        """Heap entries with the losses of merging `one` with each of `others`."""
        if not others:
            return []
        together = log_likelihood(self.sums[one] + np.stack([self.sums[i] for i in others]), self.var_floor)
        losses = self.likelihoods[one] + np.array([self.likelihoods[i] for i in others]) - together
        return list(zip(losses.tolist(), others, [one] * len(others)))
