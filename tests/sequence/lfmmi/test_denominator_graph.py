"""Denominator graphs against enumeration of phones and of paths through their HMMs."""

import itertools
from collections import Counter

import numpy as np
import pytest
from lfmmi_toys import (
    PHONES,
    chain_model,
    dense,
    lm_prob,
    model_probs,
    phone_strings,
    random_sequences,
    skipping_model,
)

from pyasr.base.errors import UserError
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.openfst import Fst
from pyasr.sequence.lfmmi.chain import chain_topology
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph, initial_probs, make_denominator_graph
from pyasr.sequence.lfmmi.pdf_expansion import PdfArcs, expand_phone_lm, join_equal_states
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm

PHONE_LM = estimate_phone_lm(random_sequences(0), PhoneLmOptions(3, 2, 4))


def string_probs(arcs: PdfArcs, num_frames: int) -> dict:
    """{string of pdfs: probability} from the start to an end, by dense matrices."""
    num_pdfs = int(arcs.pdfs.max()) + 1
    table = np.zeros((num_pdfs, arcs.num_states, arcs.num_states))
    np.add.at(table, (arcs.pdfs, arcs.sources, arcs.targets), arcs.probs)
    found = {}
    for pdfs in itertools.product(range(num_pdfs), repeat=num_frames):
        alpha = np.eye(arcs.num_states)[0]
        for pdf in pdfs:
            alpha = alpha @ table[pdf]
        found[pdfs] = float(alpha @ arcs.finals)
    return {pdfs: prob for pdfs, prob in found.items() if prob}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(chain_model(1, 0), id="no context"),
        pytest.param(chain_model(2, 1), id="left"),
        pytest.param(chain_model(3, 1), id="both"),
        pytest.param(chain_model(2, 0), id="right"),
        pytest.param(chain_model(2, 1, tied=True), id="tied"),
        pytest.param(skipping_model(), id="skips"),
    ],
)
def test_pdf_strings_have_probabilities_of_phones_and_hmms(model):
    trans, tree = model
    expanded = expand_phone_lm(PHONE_LM, trans, tree)
    joined = join_equal_states(expanded)
    for num_frames in (1, 2, 3):
        expected = Counter()
        for phones in phone_strings(num_frames):
            for (pdfs, _), prob in model_probs(phones, num_frames, trans, tree).items():
                expected[pdfs] += prob * lm_prob(PHONE_LM, phones)
        expected = {pdfs: prob for pdfs, prob in expected.items() if prob}
        assert string_probs(expanded, num_frames) == pytest.approx(expected, rel=1e-5)
        assert string_probs(joined, num_frames) == pytest.approx(expected, rel=1e-4)
    sums = np.bincount(joined.sources, joined.probs, joined.num_states) + joined.finals
    assert sums == pytest.approx(1, abs=1e-5)


def test_equal_states_of_chain_phone_are_merged():
    _, tree = chain_model()
    expanded = expand_phone_lm(PHONE_LM, TransitionModel.from_tree(chain_topology(PHONES), tree), tree)
    joined = join_equal_states(expanded)
    assert joined.num_states == 1 + (expanded.num_states - 1) // 2
    for num_frames in (1, 2, 3):
        assert string_probs(joined, num_frames) == pytest.approx(string_probs(expanded, num_frames), rel=1e-4)


def test_only_states_with_equal_futures_are_merged():
    arcs = PdfArcs(
        np.array([0, 0, 1, 2, 3]),
        np.array([1, 2, 3, 3, 3]),
        np.array([0, 1, 2, 2, 0]),
        np.array([0.5, 0.5, 0.9, 0.9, 0.5]),
        np.array([0.0, 0.1, 0.1, 0.5]),
    )
    joined = join_equal_states(arcs)
    assert joined.num_states == 3 and sorted(zip(joined.sources, joined.pdfs, joined.probs)) == [
        (0, 0, 0.5),
        (0, 1, 0.5),
        (1, 2, 0.9),
        (2, 0, 0.5),
    ]
    different = PdfArcs(
        arcs.sources,
        arcs.targets,
        arcs.pdfs,
        np.array([0.5, 0.5, 0.9, 0.8, 0.5]),
        np.array([0.0, 0.1, 0.2, 0.5]),
    )
    assert join_equal_states(different).num_states == 4


def test_initial_probabilities_average_a_hundred_steps():
    arcs = join_equal_states(expand_phone_lm(PHONE_LM, *chain_model()))
    matrix = np.zeros((arcs.num_states, arcs.num_states))
    np.add.at(matrix, (arcs.sources, arcs.targets), arcs.probs)
    matrix /= matrix.sum(axis=1, keepdims=True) + arcs.finals[:, None]
    current, total = np.eye(arcs.num_states)[0], 0
    for _ in range(100):
        total = total + current / 100
        current = current @ matrix / (current @ matrix).sum()
    assert initial_probs(arcs) == pytest.approx(total, abs=1e-9) and total.sum() == pytest.approx(1)


def test_graph_has_all_arcs_and_consistent_views(tmp_path):
    trans, tree = chain_model(3, 1)
    arcs = join_equal_states(expand_phone_lm(PHONE_LM, trans, tree))
    graph = make_denominator_graph(PHONE_LM, trans, tree)
    table = np.zeros((arcs.num_states, trans.num_pdfs, arcs.num_states))
    np.add.at(table, (arcs.sources, arcs.pdfs, arcs.targets), arcs.probs)
    assert (dense(graph) == table).all()
    again = np.zeros_like(table)
    offsets, entries, probs = graph.by_source
    sources = np.repeat(np.arange(graph.num_states), np.diff(offsets))
    np.add.at(again, (sources, graph.entry_pdfs[entries], graph.entry_targets[entries]), probs)
    assert (again == table).all()
    offsets, entries, flow = graph.by_pdf
    pdfs = np.repeat(np.arange(graph.num_pdfs), np.diff(offsets))
    assert (graph.entry_pdfs[entries] == pdfs).all() and len(set(entries.tolist())) == graph.num_entries
    assert flow == pytest.approx(
        np.einsum("s,spt->pt", graph.initial_probs, table)[pdfs, graph.entry_targets[entries]]
    )
    graph.save(tmp_path / "den.npz")
    loaded = DenominatorGraph.load(tmp_path / "den.npz")
    assert (
        loaded.num_pdfs == graph.num_pdfs
        and (dense(loaded) == table).all()
        and (loaded.initial_probs == graph.initial_probs).all()
    )


def test_invalid_graphs_are_refused(tmp_path):
    unknown = Fst.from_arcs(2, 0, [0], [9], [9], [0.0], [1], {1: 0.0})
    with pytest.raises(UserError, match="phone 9"):
        expand_phone_lm(unknown, *chain_model())
    endless = Fst.from_arcs(1, 0, [0], [PHONES[0]], [PHONES[0]], [0.0], [0], {})
    with pytest.raises(UserError, match="no complete path"):
        expand_phone_lm(endless, *chain_model())
    arcs = PdfArcs(np.array([0]), np.array([0]), np.array([5]), np.array([0.5]), np.array([0.5]))
    with pytest.raises(ValueError, match="pdfs outside 0 .. 4"):
        DenominatorGraph.from_arcs(arcs, 5)
    (tmp_path / "bad").write_bytes(b"nothing")
    with pytest.raises(UserError, match="bad: not a file of arrays .*make the denominator graph again"):
        DenominatorGraph.load(tmp_path / "bad")
