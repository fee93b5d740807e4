"""Decision trees by greedy splitting, as Kaldi's build-tree, and the first model of a tree.

Every root of phones/roots.int begins with one leaf (or one per pdf-class). In each step, the leaf with the
question of the largest gain

    gain = L(yes) + L(no) - L(leaf)

(`tree_stats`) is split, until there are `max_leaves` leaves or no gain reaches `thresh`. Then leaves of one
root are merged to one pdf if that loses less than `cluster_thresh` (by default the smallest gain of a split).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, Node, Split, TreeTable, stub_tree
from pyasr.hmm.trees.leaf_clustering import cluster_leaves
from pyasr.hmm.trees.questions import Questions
from pyasr.hmm.trees.tree_stats import UNKNOWN, VAR_FLOOR, TreeStats, log_likelihood, sums_by
from pyasr.io.text_tables import read_lines

# relative; questions whose gains differ by less count as equal, whatever the rounding of the sums; the first
# is used
_TIE = 1e-8


@dataclass(frozen=True)
class Roots:
    """phones/roots.int: sets of phones that share a root; whether all its pdf-classes share it too; whether
    it may be split."""

    sets: list[list[int]]
    shared: list[bool]
    split: list[bool]


def read_roots(path: Path) -> Roots:
    """Read lines like `shared split 1 2 3`. Raises UserError naming file and line."""
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    roots = Roots([], [], [])
    for number, words in lines:
        if (
            len(words) < 3
            or words[0] not in ("shared", "not-shared")
            or words[1] not in ("split", "not-split")
        ):
            raise UserError(
                f"{path}:{number}: 'shared|not-shared split|not-split PHONE-IDS' was expected, found "
                f"{' '.join(words)[:60]!r}"
            )
        if not all(word.isdecimal() and len(word) < 10 for word in words[2:]):
            raise UserError(f"{path}:{number}: phone ids must be integers; use roots.int, not roots.txt")
        roots.sets.append(sorted(map(int, words[2:])))
        roots.shared.append(words[0] == "shared")
        roots.split.append(words[1] == "split")
    phones = [phone for members in roots.sets for phone in members]
    if len(set(phones)) < len(phones) or not phones:
        raise UserError(
            f"{path}: a phone is in two roots, or there is no phone; build the language directory again"
        )
    return roots


@dataclass
class _Branch:
    """A leaf of the growing tree: its events, its best split and, after the split, its two children."""

    events: np.ndarray
    sums: np.ndarray
    stub: int
    gain: float = 0.0
    key: int = 0
    values: frozenset[int] = frozenset()
    yes: _Branch | None = None
    no: _Branch | None = None
    pdf: int = -1

    def leaves(self) -> Iterable[_Branch]:
        """The leaves below, from left (yes) to right (no)."""
        stack = [self]
        while stack:
            branch = stack.pop()
            if branch.yes is None or branch.no is None:
                yield branch
            else:
                stack += [branch.no, branch.yes]


@dataclass(frozen=True)
class BuiltTree:
    """A tree and data on its construction; log-likelihoods are sums over `num_frames` frames.

    splits  (gain, key, values, frames) of each split, in order
    """

    tree: ContextTree
    num_frames: float
    stub_log_like: float
    split_log_like: float
    log_like: float
    num_split_leaves: int
    splits: list[tuple[float, int, frozenset[int], float]]


def build_tree(
    stats: TreeStats, questions: Questions, roots: Roots, topology: Topology, max_leaves: int, **limits
) -> ContextTree:
    """The tree of `grow_tree`, logged in one line."""
    built = grow_tree(stats, questions, roots, topology, max_leaves, **limits)
    gain = (built.log_like - built.stub_log_like) / max(built.num_frames, 1.0)
    log.info(
        f"tree: {built.num_split_leaves} leaves after splitting, {built.tree.num_pdfs} pdfs after "
        f"clustering, log-likelihood per frame {built.log_like / max(built.num_frames, 1.0):.3f}, {gain:.3f} "
        "more than without context"
    )
    return built.tree


def grow_tree(
    stats: TreeStats,
    questions: Questions,
    roots: Roots,
    topology: Topology,
    max_leaves: int,
    thresh: float = 300.0,
    cluster_thresh: float = -1.0,
    round_leaves_to: int = 8,
    var_floor: float = VAR_FLOOR,
) -> BuiltTree:
    """Grow a tree, then cluster its leaves.

    max_leaves       maximum number of leaves before clustering
    thresh           minimum gain in log-likelihood of a split
    cluster_thresh   maximum loss of a merge; below 0: the smallest gain of a split; 0: no clustering
    round_leaves_to  merge further until the number of pdfs is a multiple of this; 1: no rounding
    """
    _check(stats, roots, topology)
    window = stats.context_width, stats.central_position
    num_classes = {phone: topology.num_pdf_classes(phone) for phone in topology.phones}
    stub = ContextTree(*window, stub_tree(roots.sets, roots.shared, num_classes, stats.central_position))
    branches = _plant(stats, stub)
    splitter = _Splitter(stats, questions, var_floor)
    splits = splitter.grow(_splittable(branches, stub, roots, num_classes), len(branches), max_leaves, thresh)
    leaves = [leaf for branch in branches for leaf in branch.leaves()]
    merge_below = min((gain for gain, *_ in splits), default=0.0) if cluster_thresh < 0 else cluster_thresh
    pdf_sums = _number_pdfs(leaves, merge_below, round_leaves_to if cluster_thresh else 1, var_floor)
    before, split, clustered = (
        float(log_likelihood(sums, var_floor).sum()) for sums in (_sums(branches), _sums(leaves), pdf_sums)
    )
    tree = ContextTree(*window, _graft(stub.root, branches))
    return BuiltTree(tree, stats.num_frames, before, split, clustered, len(leaves), splits)


def _sums(branches: list[_Branch]) -> np.ndarray:
    return np.stack([branch.sums for branch in branches])


def _number_pdfs(leaves: list[_Branch], merge_below: float, round_to: int, var_floor: float) -> np.ndarray:
    """Set the pdf of every leaf, the same for merged leaves. Returns the statistics of the pdfs."""
    pdfs = cluster_leaves(
        _sums(leaves), np.array([leaf.stub for leaf in leaves]), merge_below, round_to, var_floor
    )
    for leaf, pdf in zip(leaves, pdfs.tolist()):
        leaf.pdf = pdf
    return sums_by(_sums(leaves), pdfs, int(pdfs.max()) + 1)


def _check(stats: TreeStats, roots: Roots, topology: Topology) -> None:
    topology.check_phones([phone for members in roots.sets for phone in members], "phones/roots.int")
    unknown = sorted(set(np.unique(stats.key(stats.central_position)).tolist()) - set(topology.phones))
    if unknown:
        raise UserError(
            f"the alignments have phone {unknown[0]}, which is not in phones/roots.int; align with this "
            "language directory"
        )


def _plant(stats: TreeStats, stub: ContextTree) -> list[_Branch]:
    """One branch per leaf of the stub, with the events of the leaf."""
    pdf_of = stub.pdfs(stats.events[:, :-1], stats.events[:, -1])
    order = np.argsort(pdf_of, kind="stable")
    parts = np.split(order, np.searchsorted(pdf_of[order], np.arange(1, stub.num_pdfs)))
    return [
        _Branch(events, stats.sums[events].sum(axis=0), stub=number) for number, events in enumerate(parts)
    ]


def _splittable(
    branches: list[_Branch], stub: ContextTree, roots: Roots, num_classes: dict[int, int]
) -> list[_Branch]:
    frozen = {
        pdf
        for members, split in zip(roots.sets, roots.split)
        if not split
        for pdf_class in range(num_classes[members[0]])
        for pdf in stub.reachable(members[0], pdf_class)
    }
    return [branch for number, branch in enumerate(branches) if number not in frozen]


def _log_like(branch: _Branch, var_floor: float) -> float:
    return float(log_likelihood(branch.sums, var_floor))


class _Splitter:
    """Splits branches in descending order of gain."""

    def __init__(self, stats: TreeStats, questions: Questions, var_floor: float):
        self.stats, self.questions, self.var_floor = stats, questions, var_floor
        self.answers = {
            key: _answer_matrix(sets, int(stats.key(key).max()) + 1)
            for key, sets in questions.items()
            if sets
        }

    def grow(self, branches: list[_Branch], num_leaves: int, max_leaves: int, thresh: float) -> list[tuple]:
        """Split until the number of leaves, now `num_leaves`, is `max_leaves`. Returns `BuiltTree.splits`."""
        heap: list[tuple[float, int, _Branch]] = []
        count, splits = 0, []
        for branch in branches:
            heapq.heappush(heap, (-self.find_best(branch), count := count + 1, branch))
        while heap and num_leaves < max_leaves and -heap[0][0] > 0 and -heap[0][0] >= thresh:
            branch = heapq.heappop(heap)[2]
            splits.append((branch.gain, branch.key, branch.values, float(branch.sums[0])))
            num_leaves += 1
            for child in self._split(branch):
                heapq.heappush(heap, (-self.find_best(child), count := count + 1, child))
        return splits

    def find_best(self, branch: _Branch) -> float:
        """Find the best question of the branch. Returns its gain; 0 if no question has a gain."""
        for key, answers in sorted(self.answers.items()):
            values = self.stats.key(key)[branch.events]
            if len(values) == 0 or values.min() == UNKNOWN or values.min() == values.max():
                continue
            gains = self._gains(answers, values, branch)
            best = int(np.argmax(gains >= gains.max() * (1 - _TIE)))
            if gains[best] > branch.gain * (1 + _TIE):
                branch.gain, branch.key, branch.values = float(gains[best]), key, self.questions[key][best]
        return branch.gain

    def _gains(self, answers: np.ndarray, values: np.ndarray, branch: _Branch) -> np.ndarray:
        """The gain of each question. The statistics of its yes side are the product of the 0/1 answers and
        the sums by value."""
        present, index = np.unique(values, return_inverse=True)
        by_value = sums_by(self.stats.sums[branch.events], index, len(present))
        chosen = answers[:, present]
        yes, no = chosen @ by_value, (1.0 - chosen) @ by_value
        gains = (
            log_likelihood(yes, self.var_floor)
            + log_likelihood(no, self.var_floor)
            - _log_like(branch, self.var_floor)
        )
        empty = (yes[:, 0] <= 0) | (no[:, 0] <= 0)
        return np.where(empty, 0.0, gains)

    def _split(self, branch: _Branch) -> tuple[_Branch, _Branch]:
        side = np.isin(self.stats.key(branch.key)[branch.events], list(branch.values))
        branch.yes, branch.no = (
            _Branch(branch.events[mask], self.stats.sums[branch.events[mask]].sum(axis=0), branch.stub)
            for mask in (side, ~side)
        )
        return branch.yes, branch.no


def _answer_matrix(sets: list[frozenset[int]], num_values: int) -> np.ndarray:
    """1 for each value in the set of a question, float64 (questions, values)."""
    answers = np.zeros((len(sets), num_values))
    for row, values in zip(answers, sets):
        row[[value for value in values if 0 <= value < num_values]] = 1.0
    return answers


def _graft(stub: Node, branches: list[_Branch]) -> Node:
    """The stub with its leaves replaced by the grown branches."""
    if isinstance(stub, Leaf):
        return _grown(branches[stub.pdf])
    if isinstance(stub, Split):
        return Split(stub.key, stub.values, _graft(stub.yes, branches), _graft(stub.no, branches))
    return TreeTable(stub.key, tuple(child and _graft(child, branches) for child in stub.children))


def _grown(root: _Branch) -> Node:
    """A branch as a tree, without recursion, because splits of one value at a time result in deep trees."""
    order, stack, nodes = [], [root], dict[int, Node]()
    while stack:
        branch = stack.pop()
        order.append(branch)
        stack += [child for child in (branch.yes, branch.no) if child]
    for branch in reversed(order):
        is_leaf = branch.yes is None
        nodes[id(branch)] = (
            Leaf(branch.pdf)
            if is_leaf
            else Split(branch.key, branch.values, nodes[id(branch.yes)], nodes[id(branch.no)])
        )
    return nodes[id(root)]


def init_model_from_stats(
    stats: TreeStats, tree: ContextTree, topology: Topology, var_floor: float = VAR_FLOOR
) -> tuple[TransitionModel, AmDiagGmm, np.ndarray]:
    """(transition model, one Gaussian per pdf, frames per pdf float64 (num_pdfs)), as Kaldi's gmm-init-model.

    A pdf without data gets the Gaussian of all data.
    """
    pdfs = _pdfs_of_events(stats, tree)
    sums = sums_by(stats.sums, pdfs, tree.num_pdfs)
    occupancies = sums[:, 0].copy()
    empty = occupancies <= 0
    if empty.any():
        log.warning(
            f"tree: {int(empty.sum())} pdfs (the first is {int(np.argmax(empty))}) have no data; they get "
            "the Gaussian of all data"
        )
        sums[empty] = stats.sums.sum(axis=0)
    dim = sums.shape[1] // 2
    means, squares = sums[:, 1 : 1 + dim] / sums[:, :1], sums[:, 1 + dim :] / sums[:, :1]
    gmm = AmDiagGmm.from_moments(
        np.arange(tree.num_pdfs + 1), np.ones(tree.num_pdfs), means, np.maximum(squares - means**2, var_floor)
    )
    return TransitionModel.from_tree(topology, tree), gmm, occupancies


def _pdfs_of_events(stats: TreeStats, tree: ContextTree) -> np.ndarray:
    if (stats.context_width, stats.central_position) != (tree.context_width, tree.central_position):
        raise UserError(
            f"the tree has windows of {tree.context_width} phones, the statistics {stats.context_width}; "
            "accumulate them again"
        )
    return tree.pdfs(stats.events[:, :-1], stats.events[:, -1])
