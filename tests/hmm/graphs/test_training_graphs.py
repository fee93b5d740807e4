"""Training graphs against a plain enumeration of pronunciations, contexts and HMM paths; alignment against
exhaustive search."""

import gmm_toys
import numpy as np
import pytest
from gmm_toys import (
    LEXICON,
    PHONES,
    SIL,
    SILENCE_PROB,
    all_paths,
    random_model,
    random_transitions,
    tid_cost,
    topology,
    triphone_tree,
)

from pyasr.base.errors import UserError
from pyasr.hmm.align.viterbi import AlignOptions, align, align_equal, align_gmm
from pyasr.hmm.graphs.training_graphs import GraphCompiler, transition_costs
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import PDF_CLASS, ContextTree, Leaf, TreeTable, monophone_tree
from pyasr.io.openfst import Fst
from pyasr.lang.lexicons.lexicon_fst import OptionalSilence, Pronunciations, lexicon_fst
from pyasr.lang.lexicons.silence_lexicon_fst import silence_lexicon_fst
from pyasr.lang.lexicons.silence_probs import SilenceProbs, WordSilence

MONO = monophone_tree([[SIL], [2, 4], [3]], {SIL: 3} | dict.fromkeys(PHONES, 2))
TREES = {"mono": MONO, "triphone": triphone_tree()}
EXACT = AlignOptions(beam=1e9, retry_beam=0)
UTTERANCES = {"one": ([2], 7), "two": ([1, 2], 9), "same_twice": ([2, 2], 8), "three": ([3, 1, 3], 11)}


def lexicon() -> Fst:
    rows = [(word, cost, phones) for word, prons in LEXICON.items() for phones, cost in prons]
    return lexicon_fst(Pronunciations(*map(list, zip(*rows))), OptionalSilence(SILENCE_PROB, SIL))


def graph_paths(graph, num_frames: int, costs: np.ndarray) -> dict[tuple[int, ...], float]:
    """{transition-ids: cost} of all paths of a training graph. Probabilities of equal paths are added."""
    found: dict[tuple[int, ...], float] = {}

    def walk(node: int, tids: tuple[int, ...], cost: float) -> None:
        if len(tids) > num_frames:
            return
        if len(tids) == num_frames and np.isfinite(graph.final[node]):
            found[tids] = -np.logaddexp(-found.get(tids, np.inf), -cost - graph.final[node])
        if graph.loops[node] > 0:
            walk(node, (*tids, graph.loops[node]), cost + costs[graph.loops[node]])
        for edge in range(graph.offsets[node], graph.offsets[node + 1]):
            after = graph.successors[edge]
            walk(after, (*tids, graph.tids[after]), cost + graph.costs[edge] + costs[graph.tids[after]])

    for node in np.flatnonzero(np.isfinite(graph.initial)):
        walk(node, (graph.tids[node],), graph.initial[node] + costs[graph.tids[node]])
    return found


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("words, num_frames", UTTERANCES.values(), ids=UTTERANCES)
def test_paths_and_costs_equal_enumeration(name, words, num_frames):
    tree = TREES[name]
    trans = random_transitions(tree)
    graphs, failed = GraphCompiler(lexicon(), trans, tree).compile({"utt": words})
    assert not failed
    ours = graph_paths(graphs["utt"], num_frames, transition_costs(trans, 1.0, 0.1))
    expected = all_paths(words, num_frames, trans, tree, 1.0, 0.1)
    assert len(expected) > 30 and {tuple(map(int, tids)) for tids in ours} == expected.keys()
    np.testing.assert_allclose([ours[tids] for tids in expected], list(expected.values()), rtol=0, atol=1e-5)


NUMBERS = (
    (0.2, 1.5, 0.7),
    (0.6, 0.9, 1.2),
    (0.35, 0.5, 1.1),
    (0.9, 1.0, 1.0),
    (0.01, 2.5, 0.3),
    (0.5, 0.8, 1.9),
)
AROUND = [WordSilence(*numbers) for numbers in NUMBERS]
ROWS = [(word, cost, phones) for word, prons in LEXICON.items() for phones, cost in prons]
PROBS = SilenceProbs({}, begin=0.8, end_silence=1.4, end_none=0.2, overall=0.4)


def sequences_with_silences(words: list[int]):
    """(phones, cost) of every pronunciation of `words` with silence probabilities that depend on the
    neighbouring pronunciations."""
    states = [((), 0.0, PROBS.begin)]
    for word in [*words, None]:
        options = [
            (phones, cost, around) for (other, cost, phones), around in zip(ROWS, AROUND) if other == word
        ]
        options = options or [((), 0.0, WordSilence(0.5, PROBS.end_silence, PROBS.end_none))]
        states = [
            (
                phones + (SIL,) * silent + said,
                total
                + cost
                - np.log(after * around.before_silence if silent else (1 - after) * around.before_none),
                around.after,
            )
            for phones, total, after in states
            for said, cost, around in options
            for silent in (True, False)
        ]
    return [(phones, total) for phones, total, _ in states]


@pytest.mark.parametrize("words, num_frames", [([2], 7), ([1, 2], 9)])
def test_word_dependent_silence_paths_equal_enumeration(monkeypatch, words, num_frames):
    monkeypatch.setattr(gmm_toys, "phone_sequences", sequences_with_silences)
    trans = random_transitions(TREES["triphone"])
    fst = silence_lexicon_fst(Pronunciations(*map(list, zip(*ROWS))), AROUND, PROBS, SIL)
    graphs, failed = GraphCompiler(fst, trans, TREES["triphone"]).compile({"utt": words})
    ours = graph_paths(graphs["utt"], num_frames, transition_costs(trans, 1.0, 0.1))
    expected = all_paths(words, num_frames, trans, TREES["triphone"], 1.0, 0.1)
    assert not failed and len(expected) > 30 and {tuple(map(int, tids)) for tids in ours} == expected.keys()
    np.testing.assert_allclose([ours[tids] for tids in expected], list(expected.values()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("scales", [(1.0, 0.1), (1.0, 1.0), (0.0, 0.0), (0.3, 0.7)])
def test_transition_costs_equal_log_probabilities(scales):
    trans = random_transitions(TREES["triphone"], seed=3)
    costs = transition_costs(trans, *scales)
    assert np.isinf(costs[0])
    np.testing.assert_allclose(
        costs[1:], [tid_cost(trans, tid, *scales) for tid in range(1, trans.num_tids + 1)], atol=1e-9
    )


def test_batched_utterances_equal_single_ones():
    tree = TREES["triphone"]
    trans = random_transitions(tree)
    compiler = GraphCompiler(lexicon(), trans, tree)
    words = {name: ids for name, (ids, _) in UTTERANCES.items()}
    together, _ = compiler.compile(words)
    for name, ids in words.items():
        alone = GraphCompiler(lexicon(), trans, tree).compile({name: ids})[0][name]
        again = compiler.compile({name: ids})[0][name]
        for field, array in vars(together[name]).items():
            np.testing.assert_array_equal(array, getattr(alone, field))
            np.testing.assert_array_equal(array, getattr(again, field))


def test_contexts_with_equal_hmms_share_nodes():
    tree = triphone_tree()
    wide = ContextTree(
        3,
        1,
        TreeTable(
            1, (None, *[TreeTable(PDF_CLASS, tuple(Leaf(3 * p + c) for c in range(3))) for p in range(4)])
        ),
    )
    small = GraphCompiler(lexicon(), random_transitions(wide), wide).compile({"utt": [1, 3, 1]})[0]["utt"]
    mono = GraphCompiler(lexicon(), random_transitions(MONO), MONO).compile({"utt": [1, 3, 1]})[0]["utt"]
    large = GraphCompiler(lexicon(), random_transitions(tree), tree).compile({"utt": [1, 3, 1]})[0]["utt"]
    assert small.num_nodes == mono.num_nodes < large.num_nodes


def acoustic_of(graph, num_frames: int, seed: int) -> np.ndarray:
    return (20 * np.random.default_rng(seed).standard_normal((len(graph.pdfs), num_frames))).astype(
        np.float32
    )


def path_score(tids, cost: float, graph, acoustic: np.ndarray, trans: TransitionModel, scale: float) -> float:
    rows = np.searchsorted(graph.pdfs, trans.tid2pdf[list(tids)])
    return scale * float(acoustic[rows, np.arange(len(tids))].sum(dtype=np.float64)) - cost


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("words, num_frames", UTTERANCES.values(), ids=UTTERANCES)
def test_alignment_equals_best_of_all_paths(name, words, num_frames):
    tree = TREES[name]
    trans = random_transitions(tree)
    graph = GraphCompiler(lexicon(), trans, tree).compile({"utt": words})[0]["utt"]
    costs = transition_costs(trans, 1.0, 0.1)
    paths = graph_paths(graph, num_frames, costs)  # compared with an enumeration above
    for seed in range(5):
        acoustic = acoustic_of(graph, num_frames, seed)
        scores = {tids: path_score(tids, cost, graph, acoustic, trans, 0.1) for tids, cost in paths.items()}
        tids, score, retried = align(graph, acoustic, costs, EXACT)
        assert not retried and score == pytest.approx(max(scores.values()), abs=1e-4)
        assert scores[tuple(tids)] == pytest.approx(score, abs=1e-4)


def test_gmm_alignment_equals_alignment_of_log_likelihoods():
    tree = TREES["triphone"]
    trans = random_transitions(tree)
    model = random_model(trans.num_pdfs, 5, 3)
    graph = GraphCompiler(lexicon(), trans, tree).compile({"utt": [3, 1, 3, 2]})[0]["utt"]
    costs = transition_costs(trans)
    for seed, num_frames in enumerate((14, 16, 17, 32, 50)):
        feats = (2 * np.random.default_rng(seed).standard_normal((num_frames, 3))).astype(np.float32)
        for options in (EXACT, AlignOptions(beam=2.0, retry_beam=50.0)):
            ours = align_gmm(graph, model, feats, costs, options)
            full = align(graph, model.log_likelihoods_by_pdf(feats, graph.pdfs), costs, options)
            assert (
                ours[0].tolist() == full[0].tolist()
                and ours[1] == pytest.approx(full[1], abs=1e-3)
                and ours[2] == full[2]
            )


def test_retry_beam_is_used_if_beam_fails():
    tree = TREES["triphone"]
    trans = random_transitions(tree)
    graph = GraphCompiler(lexicon(), trans, tree).compile({"utt": [3, 1, 3]})[0]["utt"]
    costs = transition_costs(trans)
    outcomes = set()
    for seed in range(40):
        acoustic = acoustic_of(graph, 12, seed)
        best, best_score, _ = align(graph, acoustic, costs, EXACT)
        narrow, _, _ = align(graph, acoustic, costs, AlignOptions(beam=2.5, retry_beam=0))
        tids, score, retried = align(graph, acoustic, costs, AlignOptions(beam=2.5, retry_beam=1000.0))
        assert retried == (narrow is None) and tids is not None and score <= best_score + 1e-9
        if retried:
            assert score == best_score and tids.tolist() == best.tolist()
        outcomes.add(retried)
    assert outcomes == {True, False}


def test_utterance_too_short_for_its_words_has_no_alignment():
    trans = random_transitions(MONO)
    graph = GraphCompiler(lexicon(), trans, MONO).compile({"utt": [3, 3]})[0]["utt"]
    costs = transition_costs(trans)
    assert align(graph, acoustic_of(graph, 3, 0), costs, EXACT)[0] is None
    assert align(graph, acoustic_of(graph, 4, 0), costs, EXACT)[0] is not None
    assert align(graph, acoustic_of(graph, 0, 0), costs, EXACT)[0] is None
    assert align_equal(graph, 3, np.random.default_rng(0)) is None


def test_equal_alignment_is_a_valid_path():
    tree = TREES["triphone"]
    trans = random_transitions(tree)
    graph = GraphCompiler(lexicon(), trans, tree).compile({"utt": [1, 2]})[0]["utt"]
    seen = set()
    for seed in range(30):
        tids = align_equal(graph, 11, np.random.default_rng(seed))
        assert len(tids) == 11
        seen.add(tuple(tids.tolist()))
        entered = np.flatnonzero(~trans.is_self_loop[tids])
        lengths = np.diff(np.append(entered, 11))
        assert lengths.max() - lengths.min() <= 1
    assert len(seen) > 10 and seen <= all_paths([1, 2], 11, trans, tree, 1.0, 0.1).keys()


@pytest.mark.parametrize(
    "words, reason",
    [([], "transcript is empty"), ([1, 99], "word '99' has no pronunciation"), ([99], "word '99'")],
)
def test_utterances_without_graph_are_named(words, reason):
    graphs, failed = GraphCompiler(lexicon(), random_transitions(MONO), MONO).compile(
        {"good": [1], "bad": words}
    )
    assert list(graphs) == ["good"] and reason in failed["bad"]


def test_lexicon_with_unknown_phone_is_refused():
    fst = lexicon_fst(Pronunciations([1], [0.0], [(2, 9)]), OptionalSilence(0.5, SIL))
    with pytest.raises(UserError, match="phone 9"):
        GraphCompiler(fst, random_transitions(MONO), MONO)


def test_wide_contexts_are_refused():
    wide = ContextTree(
        5,
        2,
        TreeTable(
            2, (None, *[TreeTable(PDF_CLASS, tuple(Leaf(3 * p + c) for c in range(3))) for p in range(4)])
        ),
    )
    with pytest.raises(UserError, match="context of 5 phones"):
        GraphCompiler(lexicon(), TransitionModel.from_tree(topology(), wide), wide)


def test_epsilon_cycle_is_named():
    looping = Fst.from_arcs(2, 0, [0, 0, 1], [2, 0, 0], [1, 0, 0], [0.0, 1.0, 1.0], [1, 1, 0], {1: 0.0})
    _, failed = GraphCompiler(looping, random_transitions(MONO), MONO).compile({"utt": [1]})
    assert "cycle of epsilons" in failed["utt"]
