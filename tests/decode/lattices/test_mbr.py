"""Minimum Bayes risk decoding against the expected edit distance over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from word_graphs import as_tree, expected_errors, paths, random_word_graph

from pyasr.decode.lattices import mbr
from pyasr.decode.lattices.mbr import mbr_decode
from pyasr.decode.lattices.word_graph import WordGraph

NOISE = 1e-3  # error due to delta


def graphs(num: int, seed: int = 0, **options):
    rng = np.random.default_rng(seed)
    return [random_word_graph(rng, **options) for _ in range(num)]


def all_hypotheses(longest: int, num_words: int):
    return itertools.chain.from_iterable(
        itertools.product(range(1, num_words + 1), repeat=n) for n in range(longest + 1)
    )


def test_risk_is_exact_on_trees():
    for graph in graphs(15):
        tree, found = as_tree(graph), paths(graph)
        for words in [[], [1], [2, 1], [3, 1, 2, 2], [1, 1, 1, 1, 1, 1]]:
            assert mbr_decode(tree, words, decode=False).risk == pytest.approx(
                expected_errors(found, words), abs=NOISE
            )


def test_risk_is_upper_bound_on_any_lattice():
    slack = []
    for graph in graphs(40):
        found = paths(graph)
        for words in [[], [1], [2, 1], [3, 1, 2, 2]]:
            slack.append(mbr_decode(graph, words, decode=False).risk - expected_errors(found, words))
    assert min(slack) > -NOISE and max(slack) > 0.01 and np.mean(slack) < 0.1


def test_found_words_have_least_expected_error():
    """The iteration from the best path can end in a local minimum; on trees, where the risk is exact, it is
    rarely far from the minimum."""
    excess = []
    for graph in graphs(25, num_states=5, num_words=3):
        found = paths(graph)
        best = min(expected_errors(found, words) for words in all_hypotheses(5, 3))
        result = mbr_decode(as_tree(graph))
        assert expected_errors(found, result.words) == pytest.approx(result.risk, abs=NOISE)
        excess.append(result.risk - best)
    assert min(excess) > -NOISE and np.mean(excess) < 0.05 and np.mean(np.array(excess) < NOISE) > 0.7


def test_risk_never_increases_between_iterations(monkeypatch):
    risks: list[float] = []
    statistics = mbr._Lattice.statistics
    monkeypatch.setattr(
        mbr._Lattice, "statistics", lambda *a: risks.append((found := statistics(*a)).risk) or found
    )
    improved = 0
    for graph in graphs(60, 1, num_states=9):
        for words in (None, [], [4, 3, 2, 1]):
            risks.clear()
            mbr_decode(graph, words)
            assert all(later <= earlier + NOISE for earlier, later in zip(risks, risks[1:]))
            improved += risks[-1] < risks[0] - 0.01
    assert improved > 40


def test_gammas_sum_to_one_at_every_position():
    for graph in graphs(20, 2, num_states=8):
        result = mbr_decode(graph)
        assert all(sum(p for _, p in place.words) == pytest.approx(1, abs=1e-9) for place in result.bins)
        confident = {word for place in result.bins for word, _ in place.words[:1]}
        assert set(result.words) <= confident


@pytest.mark.parametrize("num", [6, 3000])
def test_confidences_equal_posteriors_in_confusion_network(num):
    """Slots of three words: the most probable word of each slot and its posterior; also for 20 minutes,
    longer than the window."""
    rng = np.random.default_rng(0)
    costs = rng.random((num, 3)) * 3
    sources = np.repeat(np.arange(num), 3).astype(np.int32)
    words = np.arange(1, 3 * num + 1).astype(np.int32)
    finals = np.append(np.full(num, np.inf), 0.0)
    graph = WordGraph(sources, sources + 1, words, costs.ravel(), finals, 40 * np.arange(num + 1), 40 * num)
    shares = np.exp(-costs) / np.exp(-costs).sum(1, keepdims=True)
    result = mbr_decode(graph)
    assert result.words == (3 * np.arange(num) + 1 + shares.argmax(1)).tolist()
    assert result.confidences == pytest.approx(shares.max(1))
    assert np.array(result.times) == pytest.approx(40.0 * np.arange(num)[:, None] + [0, 40])
    assert result.risk == pytest.approx((1 - shares.max(1)).sum(), abs=num * NOISE / 6)


def test_mbr_prefers_majority_to_best_path():
    """Three paths 'a b', 'a c', 'd c' of posterior 0.4, 0.3, 0.3: the best path is 'a b', the majority at
    each position 'a c'."""
    arcs = [
        (0, 1, 1, -np.log(0.7)),
        (0, 2, 4, -np.log(0.3)),
        (1, 3, 2, -np.log(4 / 7)),
        (1, 3, 3, -np.log(3 / 7)),
        (2, 3, 3, 0.0),
    ]
    sources, targets, words, costs = (np.array(column) for column in zip(*arcs))
    graph = WordGraph(
        sources.astype(np.int32),
        targets.astype(np.int32),
        words.astype(np.int32),
        costs,
        np.array([np.inf, np.inf, np.inf, 0.0]),
        np.array([0, 4, 5, 9]),
        9,
    )
    result = mbr_decode(graph)
    assert result.words == [1, 3] and result.confidences == pytest.approx([0.7, 0.6])
    assert np.ravel(result.times) == pytest.approx([0.0, 4.0, 4.5, 9.0])
    fixed = mbr_decode(graph, decode=False)
    assert (
        fixed.words == [1, 2] and fixed.confidences == pytest.approx([0.7, 0.4]) and fixed.risk > result.risk
    )


def test_narrow_window_changes_only_alignment_of_distant_words():
    for graph in graphs(30, 3, num_states=8):
        wide = mbr_decode(graph, [1, 2, 3], decode=False)
        narrow = mbr_decode(graph, [1, 2, 3], decode=False, window_frames=5)
        assert narrow.risk >= wide.risk - NOISE >= expected_errors(paths(graph), [1, 2, 3]) - 2 * NOISE
        same = mbr_decode(graph, window_frames=51)
        assert (same.words, same.risk) == (
            mbr_decode(graph).words,
            pytest.approx(mbr_decode(graph).risk, abs=1e-12),
        )


def test_mbr_times_are_in_order():
    for graph in graphs(50, 4, num_states=10):
        edges = [edge for pair in mbr_decode(graph).times for edge in pair]
        assert edges == sorted(edges) and all(0 <= edge <= graph.num_frames for edge in edges)


def test_empty_lattices_and_lattices_without_words():
    none = np.zeros(0, np.int32)
    empty = WordGraph(none, none, none, np.zeros(0), np.zeros(0), np.zeros(0, int), 0)
    assert mbr_decode(empty).words == []
    silent = WordGraph(none, none, none, np.zeros(0), np.zeros(1), np.zeros(1, int), 7)
    assert mbr_decode(silent) == mbr.MbrResult([], [], [], 0.0)
    assert mbr_decode(silent, [3], decode=False).confidences == [0.0]
