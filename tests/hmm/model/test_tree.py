"""Context trees against Kaldi's answers (fixtures/kaldi_hmm.json) and an independent recursive parser;
invalid files."""

import itertools
import json

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.hmm.model.tree import NO_ANSWER, ContextTree, Leaf, Split, TreeTable, monophone_tree
from pyasr.io.kaldi_objects import KaldiReader

PHONES = [0, 1, 2, 3, 4, 5, 7, 8]


@pytest.fixture(scope="module")
def kaldi(root):
    return json.loads((root / "tests/fixtures/kaldi_hmm.json").read_text())


@pytest.fixture(scope="module")
def tree(kaldi):
    return ContextTree.read(KaldiReader("tree", kaldi["tree"].encode()))


def parse(words):
    """A function (event: dict) -> pdf or None from Kaldi's text format; consumes the list `words`."""
    kind = words.pop(0)
    if kind == "NULL":
        return lambda event: None
    if kind == "CE":
        pdf = int(words.pop(0))
        return lambda event: pdf
    key = int(words.pop(0))
    if kind == "TE":
        size, _ = int(words.pop(0)), words.pop(0)
        children = [parse(words) for _ in range(size)]
        assert words.pop(0) == ")"
        return lambda event: children[event[key]](event) if event[key] < size else None
    assert kind == "SE" and words.pop(0) == "["
    values = set()
    while (word := words.pop(0)) != "]":
        values.add(int(word))
    assert words.pop(0) == "{"
    yes, no = parse(words), parse(words)
    assert words.pop(0) == "}"
    return lambda event: (yes if event[key] in values else no)(event)


def all_events(width):
    return np.array([[*window, c] for window in itertools.product(PHONES, repeat=width) for c in range(3)])


def random_tree(rng, depth):
    if depth == 0 or rng.random() < 0.1:
        return Leaf(int(rng.integers(50)))
    key = int(rng.integers(-1, 3))
    if rng.random() < 0.3:
        size = int(rng.integers(1, 9))
        return TreeTable(
            key, tuple(random_tree(rng, depth - 1) if rng.random() < 0.8 else None for _ in range(size))
        )
    values = frozenset(rng.choice(9, rng.integers(0, 5), replace=False).tolist())
    return Split(key, values, random_tree(rng, depth - 1), random_tree(rng, depth - 1))


def test_pdfs_equal_kaldi(kaldi, tree):
    for *window, pdf_class, pdf in kaldi["answers"]:
        assert tree.pdf(tuple(window), pdf_class) == pdf


@pytest.mark.parametrize("sets", ["sets", "single"])
def test_monophone_trees_equal_kaldi(tmp_path, kaldi, sets):
    monophone_tree(kaldi[sets], dict.fromkeys(PHONES, 2) | {1: 3, 2: 3}).write(tmp_path / "tree")
    assert (tmp_path / "tree").read_bytes() == b"\0B" + bytes.fromhex(kaldi["mono"][sets])


@pytest.mark.parametrize("seed", range(8))
def test_random_trees_equal_independent_parser(tmp_path, seed):
    tree = ContextTree(3, 1, Split(0, frozenset({1}), Leaf(0), random_tree(np.random.default_rng(seed), 7)))
    tree.write(tmp_path / "tree", binary=False)
    words = (tmp_path / "tree").read_text().split()
    assert words[:4] == ["ContextDependency", "3", "1", "ToPdf"] and words[-1] == "EndContextDependency"
    function, events = parse(words[4:-1]), all_events(3)
    expected = [function({0: a, 1: b, 2: c, -1: d}) for a, b, c, d in events.tolist()]
    found = tree.lookup(events[:, :3], events[:, 3])
    assert found.tolist() == [NO_ANSWER if pdf is None else pdf for pdf in expected]
    assert (tree.table(PHONES, 3).ravel() == found).all()
    assert tree.num_pdfs > max(pdf for pdf in expected if pdf is not None)


@pytest.mark.parametrize("binary", [True, False])
def test_trees_survive_round_trip(tmp_path, tree, binary):
    tree.write(tmp_path / "tree", binary)
    again = ContextTree.read(tmp_path / "tree")
    assert again.root == tree.root and (again.context_width, again.central_position, again.num_pdfs) == (
        3,
        1,
        21,
    )


def test_deep_tree_is_read(tmp_path):
    """The deepest tree of questions about single values exceeds Python's stack."""
    node = Leaf(0)
    for depth in range(1, 3000):
        node = Split(0, frozenset({depth}), Leaf(depth), node)
    tree = ContextTree(3, 1, node)
    tree.write(tmp_path / "tree")
    again = ContextTree.read(tmp_path / "tree")
    assert (
        again.pdf((2999, 1, 1), 0) == 2999 and again.pdf((1, 1, 1), 0) == 1 and again.pdf((0, 1, 1), 0) == 0
    )


def test_reachable_pdfs_cover_all_contexts(tree):
    table = tree.table(PHONES, 3)
    for i, phone in enumerate(PHONES):
        for pdf_class in range(2):
            seen = set(table[:, i, :, pdf_class].ravel().tolist()) - {NO_ANSWER}
            assert seen <= set(tree.reachable(phone, pdf_class))
    assert tree.reachable(3, 0) == [7, 9] and tree.reachable(3, 1) == [5, 6, 7]


def test_unknown_phones_are_refused(tree):
    with pytest.raises(UserError, match="no pdf for phones 1 6 1, pdf-class 0"):
        tree.pdf((1, 6, 1), 0)
    with pytest.raises(UserError, match="no pdf for phones 1 99 1"):
        tree.pdfs(np.array([[1, 3, 1], [1, 99, 1]]), np.array([0, 0]))


def test_truncated_tree_is_refused(tmp_path, tree):
    for binary in (True, False):
        tree.write(tmp_path / "tree", binary)
        content = (tmp_path / "tree").read_bytes().rstrip()
        for size in range(len(content) - 1):
            with pytest.raises(UserError, match=r"^exp/tree: at byte \d+: "):
                ContextTree.read(KaldiReader("exp/tree", content[:size]))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("TE 1 9 (", "TE 1 4000000 (", "a table of 4000000 nodes does not fit"),
        ("3 1 ToPdf", "3 3 ToPdf", "a window of 3 phones"),
        ("SE 0 [", "SE 5 [", "position 5 in a window of 3"),
        ("CE 3", "CE -3", "-3 is not a pdf"),
        ("CE 3", "NULL", "lacks one of its branches"),
        ("CE 3", "XE 3", "CE or SE or TE or NULL was expected"),
        ("SE -1 [ 0 1 ]", "SE -1 [ 0 x ]", "a list of integers"),
    ],
)
def test_invalid_trees_are_refused(kaldi, old, new, message):
    with pytest.raises(UserError, match=rf"tree: at byte \d+: .*{message}"):
        ContextTree.read(KaldiReader("tree", kaldi["tree"].replace(old, new, 1).encode()))
