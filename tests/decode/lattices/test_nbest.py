"""N-best lists against enumeration of all paths."""

from __future__ import annotations

import numpy as np
import pytest
from word_graphs import paths, random_word_graph

from pyasr.decode.lattices.nbest import n_best_arcs
from pyasr.decode.lattices.word_graph import WordGraph


def best_costs(graph) -> dict[tuple[int, ...], float]:
    """{words: cost of the best path with these words}."""
    found: dict = {}
    for words, cost in paths(graph):
        found[words] = min(cost, found.get(words, np.inf))
    return found


def found_paths(graph, num_best):
    """[(words, cost)] in the order found; checks that each is a path of the graph."""
    rows = []
    for arcs, end in n_best_arcs(graph, num_best):
        states = [0, *graph.targets[arcs].tolist()]
        assert graph.sources[arcs].tolist() == states[:-1] and states[-1] == end
        words = graph.words[arcs]
        rows.append((tuple(words[words != 0].tolist()), float(graph.costs[arcs].sum() + graph.finals[end])))
    return rows


@pytest.mark.parametrize("epsilons", [0.0, 0.4])
@pytest.mark.parametrize("num_words", [2, 5])
def test_word_sequences_are_listed_in_order_of_cost(num_words, epsilons):
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(40):
        graph = random_word_graph(rng, 7, num_words, epsilons)
        expected = sorted(best_costs(graph).items(), key=lambda item: item[1])
        several += len(expected) < len(paths(graph))
        found = found_paths(graph, 10**6)
        assert len(found) == len(expected) and dict(found).keys() == dict(expected).keys()
        assert [cost for _, cost in found] == pytest.approx([cost for _, cost in expected])
        assert all(cost == pytest.approx(best_costs(graph)[words]) for words, cost in found)
        for num in (1, 3):
            assert found_paths(graph, num) == found[:num]
    assert several > 5


def test_long_lattices_with_many_paths():
    """60 positions with 3 words: 3^60 sequences, of which the best are known."""
    costs = np.tile([0.0, 1.0, 1.5], 60)
    costs[:3] = 0.0, 0.25, 0.75
    sources = np.repeat(np.arange(60), 3).astype(np.int32)
    finals = np.append(np.full(60, np.inf), 0.0)
    graph = WordGraph(
        sources, sources + 1, np.tile([1, 2, 3], 60).astype(np.int32), costs, finals, np.arange(61), 60
    )
    found = found_paths(graph, 100)
    assert [cost for _, cost in found[:3]] == [0.0, 0.25, 0.75] and len({words for words, _ in found}) == 100
    assert [cost for _, cost in found[3:62]] == [1.0] * 59 and found[62][1] == 1.25


def test_empty_lattices():
    none = np.zeros(0, np.int32)
    assert n_best_arcs(WordGraph(none, none, none, np.zeros(0), np.zeros(0), np.zeros(0, int), 0), 5) == []
    silent = WordGraph(none, none, none, np.zeros(0), np.zeros(1), np.zeros(1, int), 7)
    assert [(arcs.tolist(), end) for arcs, end in n_best_arcs(silent, 5)] == [([], 0)] and n_best_arcs(
        silent, 0
    ) == []
