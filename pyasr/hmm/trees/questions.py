"""Questions for decision trees: sets of phones found by clustering them, as Kaldi's cluster-phones and
compile-questions.

The Gaussian statistics of the phones' central states are split in two recursively; the phones below each node
of the resulting hierarchy form a question. All positions of the window have the same questions. The questions
about the pdf-class are "at most i".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.hmm.model.tree import PDF_CLASS
from pyasr.hmm.trees.tree_stats import TreeStats, log_likelihood, sums_by

Questions = dict[int, list[frozenset[int]]]
"""Key (position in the window, or PDF_CLASS) -> sets of values."""

_NUM_TRIES, _NUM_ITERS = 10, 20


def make_questions(
    stats: TreeStats,
    sets: list[list[int]],
    extra: Iterable[Iterable[int]] = (),
    pdf_classes: Iterable[int] = (1,),
    seed: int = 0,
) -> Questions:
    """Questions about every position of the window and about the pdf-class.

    sets         sets of phones that always occur in a question together (phones/sets.int)
    extra        additional questions (phones/extra_questions.int)
    pdf_classes  the states whose statistics are clustered; Kaldi uses the central one of phones other than
                 silence
    """
    found = dict.fromkeys([*cluster_phones(stats, sets, pdf_classes, seed), *map(frozenset, extra)])
    num_classes = int(stats.key(PDF_CLASS).max()) + 1
    questions: Questions = {PDF_CLASS: [frozenset(range(i + 1)) for i in range(num_classes - 1)]}
    return questions | {position: list(found) for position in range(stats.context_width)}


def cluster_phones(
    stats: TreeStats, sets: list[list[int]], pdf_classes: Iterable[int] = (1,), seed: int = 0
) -> list[frozenset[int]]:
    """The phones below each node of the hierarchy, from the root; then the sets of other phones."""
    set_of = np.full(1 + max(max(members) for members in sets), -1)
    for index, members in enumerate(sets):
        set_of[members] = index
    chosen = stats.select(np.isin(stats.key(PDF_CLASS), list(pdf_classes)))
    phone = chosen.key(chosen.central_position)
    known = (phone < len(set_of)) & (set_of[np.minimum(phone, len(set_of) - 1)] >= 0)
    if not known.any():
        raise UserError(
            "the tree statistics have none of the phones to be clustered; "
            "use the language directory that they were accumulated with"
        )
    sums = sums_by(chosen.sums[known], set_of[phone[known]], len(sets))
    rng = generator(seed, "questions")
    nodes, found = [np.arange(len(sets))], []
    while nodes:
        node = nodes.pop(0)
        found.append(frozenset(phone for index in node for phone in sets[index]))
        nodes += _split(sums, node, rng)
    return list(dict.fromkeys([*found, *map(frozenset, sets)]))


def _split(sums: np.ndarray, node: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The two parts of a node by the best of several k-means runs; empty if none increases the likelihood."""
    if len(node) < 2:
        return []
    runs = [_two_means(sums[node], rng) for _ in range(_NUM_TRIES)]
    best, side = max(runs, key=lambda run: run[0])
    if best <= float(log_likelihood(sums[node].sum(axis=0))) or side.all() or not side.any():
        return []
    return [node[~side], node[side]]


def _two_means(sums: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """(log-likelihood, side of each point): start at random, move single points between two Gaussians while
    the likelihood increases."""
    side = rng.permutation(len(sums)) % 2 == 0
    total = _likelihood_of(sums, side)
    for _ in range(_NUM_ITERS * len(sums)):
        moved = _after_each_move(sums, side)
        best = int(np.argmax(moved))
        if moved[best] <= total + 1e-9 * abs(total):
            break
        side[best], total = not side[best], float(moved[best])
    return total, side


def _likelihood_of(sums: np.ndarray, side: np.ndarray) -> float:
    return float(log_likelihood(sums[side].sum(axis=0)) + log_likelihood(sums[~side].sum(axis=0)))


def _after_each_move(sums: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The log-likelihood after moving only point i to the other side, for all i."""
    one, two = sums[side].sum(axis=0), sums[~side].sum(axis=0)
    change = np.where(side, -1.0, 1.0)[:, None] * sums
    return log_likelihood(one + change) + log_likelihood(two - change)
