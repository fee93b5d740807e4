"""The layout of graphs for the search: against a stable sort, from a memory-mapped file, and its memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from graphs import random_graph, tid2pdf

from pyasr.base.errors import UserError
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.decode.search.search_graph import Graph
from pyasr.io.mapped_files import mapped
from pyasr.io.openfst import Fst, read_fst, write_fst

NUM_PDFS = 5
FIELDS = (
    "arcs",
    "offsets",
    "tids",
    "words",
    "vocabulary",
    "finals",
    "levels",
    "start",
    "num_pdfs",
    "num_levels",
    "cyclic",
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The path of a graph that is treated as large."""
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    write_fst(tmp_path / "HCLG.fst", random_graph(np.random.default_rng(0), 40, 160, NUM_PDFS))
    return tmp_path / "HCLG.fst"


@pytest.mark.parametrize("cycles", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_arcs_equal_stable_sort(seed, cycles):
    fst, pdfs = random_graph(np.random.default_rng(seed), 20, 90, NUM_PDFS, cycles=cycles), tid2pdf(NUM_PDFS)
    graph = Graph(fst, pdfs)
    order = np.lexsort((fst.ilabels == 0, fst.sources))
    assert np.array_equal(graph.tids, fst.ilabels[order]) and np.array_equal(graph.words, fst.olabels[order])
    assert np.array_equal(graph.arcs["target"], fst.nextstates[order]) and np.array_equal(
        graph.arcs["weight"], fst.weights[order]
    )
    assert np.array_equal(graph.arcs["pdf"], pdfs[fst.ilabels[order]]) and np.array_equal(
        graph.vocabulary, np.unique(fst.olabels)
    )
    assert np.array_equal(graph.offsets[:, 0], fst.arc_offsets)
    for state, (begin, middle) in enumerate(graph.offsets[:-1]):
        assert (graph.tids[begin:middle] > 0).all() and (
            graph.tids[middle : graph.offsets[state + 1, 0]] == 0
        ).all()


def test_mapped_graph_equals_graph_in_memory(path, monkeypatch):
    own = Graph(read_fst(path), tid2pdf(NUM_PDFS))
    graphs = [Graph.read(path, tid2pdf(NUM_PDFS))]
    monkeypatch.setattr("pyasr.decode.search.search_graph.read_fst", None)  # the graph is not read again
    graphs.append(Graph.read(path, tid2pdf(NUM_PDFS)))
    loglikes = np.random.default_rng(1).standard_normal((30, NUM_PDFS)).astype(np.float32)
    expected = vars(Decoder.on(own, DecodeOptions()).decode(loglikes))
    for graph in graphs:
        assert all(np.array_equal(getattr(graph, name), getattr(own, name)) for name in FIELDS)
        found = vars(Decoder.on(graph, DecodeOptions()).decode(loglikes))
        arrays = [name for name, value in expected.items() if isinstance(value, np.ndarray)]
        assert len(arrays) > 5 and all(found[name].tobytes() == expected[name].tobytes() for name in arrays)


def test_each_model_has_its_own_layout(path):
    other = tid2pdf(NUM_PDFS)[np.r_[0, np.arange(2 * NUM_PDFS, 0, -1)]]
    for _ in range(2):
        for pdfs in (tid2pdf(NUM_PDFS), other):
            graph = Graph.read(path, pdfs)
            assert np.array_equal(graph.arcs["pdf"], pdfs[graph.tids])
    assert len(list(path.parent.glob(".HCLG.fst.search.*"))) == 2


def test_graph_of_other_model_leaves_no_layout(path):
    with pytest.raises(UserError, match="transition-id"):
        Graph.read(path, tid2pdf(2))
    assert [entry.name for entry in path.parent.iterdir()] == ["HCLG.fst"]


def test_memory_of_reading_graph(tmp_path):
    """Reading needs twice the size of the file, creation of the layout slightly more, and a memory-mapped
    layout almost nothing."""
    rng, num_states, num_arcs = np.random.default_rng(0), 60_000, 300_000
    fst = random_graph(rng, num_states, num_arcs, NUM_PDFS)
    write_fst(tmp_path / "HCLG.fst", fst)
    size = (tmp_path / "HCLG.fst").stat().st_size
    assert size > mapped.MIN_BYTES
    read = lambda: read_fst(tmp_path / "HCLG.fst")
    graph = lambda: Graph.read(tmp_path / "HCLG.fst", tid2pdf(NUM_PDFS))
    # compiles the kernels
    Graph(Fst.from_arcs(2, 0, [0, 0], [0, 1], [1, 1], [0, 0], [1, 1], {1: 0.0}), tid2pdf(NUM_PDFS))
    peaks = []
    for load in (read, graph, graph):
        load_and_drop(load, peaks)
    assert peaks[0] < 2.3 * size and peaks[1] < 2.8 * size and peaks[2] < 0.1 * size


def load_and_drop(load, peaks: list) -> None:
    tracemalloc.start()
    load()
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
