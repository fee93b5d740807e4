"""H, self-loops and HCLG against brute force over the topology, the tree, L and G, and against Kaldi's
programs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kaldi_binaries
import numpy as np
import pytest
from fst_paths import best_cost, composed_cost, random_paths
from graph_toys import contexts, kaldi_hclg, random_probabilities, random_tree
from toy_language import random_ngrams, write_arpa_text, write_toy_lang

from pyasr.base.errors import UserError
from pyasr.hmm.graphs.decoding_graph import GraphOptions, make_hclg
from pyasr.hmm.graphs.h_transducer import add_self_loops, h_transducer, merge_equal_contexts
from pyasr.hmm.graphs.training_graphs import transition_costs
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, monophone_tree
from pyasr.io.openfst import Fst, read_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", params=[1, 3], ids=["mono", "tri"])
def system(request, tmp_path_factory):
    """(lang_test, model dir, graph dir, transition model, tree, graph)."""
    root = tmp_path_factory.mktemp("graph")
    write_toy_lang(root / "lang", num_words=20, num_phones=4)
    write_arpa_text(
        root / "lm.arpa", random_ngrams(0, [*(f"w{i}" for i in range(20)), "<unk>"], (0, 120, 120))
    )
    for name in ("lang_test", "model", "graph"):
        (root / name).mkdir()
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    lang, topology = LangDir(root / "lang"), Topology.read(root / "lang/topo")
    classes = {phone: topology.num_pdf_classes(phone) for phone in topology.phones}
    tree = monophone_tree(lang.sets, classes) if request.param == 1 else random_tree(lang, topology, 5)
    trans = random_probabilities(TransitionModel.from_tree(topology, tree), 1)
    tree.write(root / "model/tree")
    trans.write(root / "model/final.mdl")
    trans = TransitionModel.read(root / "model/final.mdl")
    graph = make_hclg(root / "lang_test", root / "model", root / "graph")
    return root, trans, tree, graph


def hmm_walks(trans, tree, window, max_arcs):
    """Every path through the HMM of a window without self-loops: {transition-ids: cost}, by recursion over
    the topology."""
    phone = window[tree.central_position]
    entry = trans.topology.entry(phone)

    def ways(state, arcs_left):
        if state == len(entry) - 1:
            yield (), 0.0
        elif arcs_left:
            trans_state = trans.transition_state(
                phone, state, tree.pdf(tuple(window), entry[state].pdf_class)
            )
            tids = trans.tids_of(trans_state)
            loop = sum(
                np.exp(trans.log_prob[tid])
                for tid, (to, _) in zip(tids, entry[state].transitions)
                if to == state
            )
            for tid, (to, _) in zip(tids, entry[state].transitions):
                if to != state:
                    for rest, cost in ways(to, arcs_left - 1):
                        yield (tid, *rest), cost - trans.log_prob[tid] + np.log(1 - loop)

    return dict(ways(0, max_arcs))


def paths_of_label(h, label, max_arcs):
    """{input labels: cost} of all paths from state 0 back to it with this output label."""
    found, stack = {}, [(0, (), 0.0, False)]
    while stack:
        state, tids, cost, begun = stack.pop()
        if state == 0 and begun:
            found[tids] = cost
            continue
        for a in range(h.arc_offsets[state], h.arc_offsets[state + 1]):
            if h.olabels[a] == (0 if begun else label) and len(tids) < max_arcs:
                stack.append(
                    (int(h.nextstates[a]), (*tids, int(h.ilabels[a])), cost + float(h.weights[a]), True)
                )
    return found


def test_h_has_paths_of_topology(system):
    root, trans, tree, _ = system
    _, info = contexts(make_lg(root / "lang_test"), LangDir(root / "lang"), tree)
    h, disambig = h_transducer(info, trans, tree)
    assert np.isfinite(h.finals).tolist() == [True] + [False] * (h.num_states - 1) and h.start == 0
    for label, meaning in enumerate(info):
        if len(meaning) == tree.context_width and meaning[-1] >= 0:
            found, expected = paths_of_label(h, label, 6), hmm_walks(trans, tree, meaning, 6)
            assert found.keys() == expected.keys()
            assert all(found[tids] == pytest.approx(expected[tids], abs=1e-4) for tids in expected)
    marks = [label for label, meaning in enumerate(info) if len(meaning) == 1 and meaning[0] <= 0]
    assert len(disambig) == len(marks) and min(disambig) > trans.num_tids
    assert [paths_of_label(h, mark, 6) for mark in marks] == [{(tid,): 0.0} for tid in disambig]


def test_merged_contexts_have_equal_hmms(system):
    root, trans, tree, _ = system
    clg, info = contexts(make_lg(root / "lang_test"), LangDir(root / "lang"), tree)
    merged, kept = merge_equal_contexts(clg, info, trans, tree)

    def hmm(meaning):
        if len(meaning) != tree.context_width or meaning[-1] < 0:
            return tuple(meaning)
        states = trans.topology.entry(meaning[tree.central_position])[:-1]
        return meaning[tree.central_position], *(
            tree.pdf(tuple(meaning), state.pdf_class) for state in states
        )

    assert all(hmm(info[old]) == hmm(kept[new]) for old, new in zip(clg.ilabels, merged.ilabels))
    assert len({hmm(meaning) for meaning in kept}) == len(kept)


def phones_of(tids, trans):
    """Phones of a path, after a check of its validity: forward transitions, each with repetitions of its
    state's self-loop."""
    phones, state, entered = [], 0, None
    for tid in tids:
        if trans.is_self_loop[tid]:
            assert trans.tid2state[tid] == entered
            continue
        entered = trans.tid2state[tid]
        assert trans.tid2hmm_state[tid] == state
        if state == 0:
            phones.append(int(trans.tid2phone[tid]))
        assert trans.tid2phone[tid] == phones[-1]
        entry = trans.topology.entry(phones[-1])
        state = entry[state].transitions[trans.tid2index[tid]][0]
        state = 0 if state == len(entry) - 1 else state
    assert state == 0
    return phones


def transitions_cost(tids, trans, scale=1.0, loop_scale=0.1):
    cost = 0.0
    for tid in tids:
        if trans.is_self_loop[tid]:
            cost -= loop_scale * trans.log_prob[tid]
        else:
            loop = trans.self_loop_tid[trans.tid2state[tid]]
            leave = np.log(1 - np.exp(trans.log_prob[loop]))
            cost -= loop_scale * leave + scale * (trans.log_prob[tid] - leave)
    return cost


def pdfs_fit(tids, phones, trans, tree):
    """Whether every pdf on the path equals that of the tree for the window around its phone."""
    width, centre = tree.context_width, tree.central_position
    padded, number, ends = [0] * centre + phones + [0] * (width - centre - 1), -1, True
    for tid in tids:
        if not trans.is_self_loop[tid]:
            number += ends
            ends = bool(trans.is_final[tid])
        if (
            tree.pdf(tuple(padded[number : number + width]), int(trans.tid2pdf_class[tid]))
            != trans.tid2pdf[tid]
        ):
            return False
    return True


def lexicon_and_grammar(lang):
    """L_disambig and G with all disambiguation symbols except #0 replaced by epsilon."""
    lexicon, grammar = read_fst(lang / "L_disambig.fst"), read_fst(lang / "G.fst")
    return ops.remove_symbols(lexicon, LangDir(lang).disambig_phones), grammar


def test_hclg_path_costs_are_sums_of_parts(system):
    root, trans, tree, graph = system
    lexicon, grammar = lexicon_and_grammar(root / "lang_test")
    paths = random_paths(graph, 25, stop=0.7)
    assert len(paths) == 25
    for tids, words, _ in paths:
        phones = phones_of(tids, trans)
        assert pdfs_fit(tids, phones, trans, tree)
        expected = transitions_cost(tids, trans) + composed_cost(lexicon, grammar, phones, words)
        assert best_cost(graph, tids, words) == pytest.approx(expected, abs=0.01 + 0.001 * len(phones))
        assert transitions_cost(tids, trans) == pytest.approx(transition_costs(trans)[tids].sum())


def test_sampled_sentences_are_in_hclg(system):
    """Phones and words from LG, transition-ids from random walks through the topology with some
    self-loops."""
    root, trans, tree, graph = system
    lexicon, grammar = lexicon_and_grammar(root / "lang_test")
    rng, real = np.random.default_rng(7), set(LangDir(root / "lang").real_phones)
    for labels, words, _ in random_paths(make_lg(root / "lang_test"), 15, stop=0.7):
        phones = [label for label in labels if label in real]
        tids = random_tids(phones, trans, tree, rng)
        expected = transitions_cost(tids, trans) + composed_cost(lexicon, grammar, phones, words)
        assert best_cost(graph, tids, words) == pytest.approx(expected, abs=0.01 + 0.001 * len(phones))


def random_tids(phones, trans, tree, rng):
    width, centre = tree.context_width, tree.central_position
    padded, tids = [0] * centre + phones + [0] * (width - centre - 1), []
    for number in range(len(phones)):
        walks = list(hmm_walks(trans, tree, padded[number : number + width], 6))
        for tid in walks[rng.integers(len(walks))]:
            tids += [tid] + [int(trans.self_loop_tid[trans.tid2state[tid]])] * int(rng.integers(0, 3))
    return tids


@kaldi_binaries.needed
def test_hclg_equals_that_of_kaldi_programs(system, tmp_path):
    root, trans, tree, graph = system
    theirs = kaldi_hclg(make_lg(root / "lang_test"), LangDir(root / "lang"), trans, tree, tmp_path)
    assert abs(theirs.num_states - graph.num_states) <= 0.01 * graph.num_states
    for one in (graph, theirs):
        for tids, words, _ in random_paths(one, 20, stop=0.7):
            assert best_cost(graph, tids, words) == pytest.approx(
                best_cost(theirs, tids, words), abs=0.005 + 0.001 * len(words)
            )


def test_graph_dir_is_complete(system):
    root, trans, _, graph = system
    assert read_fst(root / "graph/HCLG.fst").text() == graph.text()
    for name in (
        "words.txt",
        "phones.txt",
        "phones/word_boundary.int",
        "phones/align_lexicon.int",
        "phones/silence.csl",
    ):
        assert (root / "graph" / name).read_bytes() == (root / "lang" / name).read_bytes()
    assert int((root / "graph/num_pdfs").read_text()) == trans.num_pdfs
    assert graph.ilabels.max() <= trans.num_tids


def test_states_with_different_entries_are_split(system):
    _, trans, _, _ = system
    forward = np.flatnonzero(~trans.is_self_loop[1:]) + 1
    one, other = int(forward[0]), int(forward[-1])
    assert trans.tid2state[one] != trans.tid2state[other]
    graph = Fst.from_arcs(
        2,
        0,
        [0, 0, 0, 1],
        [one, other, 0, one],
        [3, 4, 5, 6],
        [0.5, 0.25, 0.125, 0.0],
        [1, 1, 1, 0],
        {1: 0.0},
    )
    looped = add_self_loops(graph, trans, 0.1)
    loops = [int(trans.self_loop_tid[trans.tid2state[tid]]) for tid in (one, other)]
    for tids, words, base in (
        ([one, loops[0], loops[0]], [3], 0.5),
        ([other, loops[1]], [4], 0.25),
        ([], [5], 0.125),
        ([one, loops[0], one, loops[0], other], [3, 6, 4], 0.75),
    ):
        added = transitions_cost(tids, trans, scale=0.0, loop_scale=0.1)
        assert best_cost(looped, tids, words) == pytest.approx(base + added, abs=1e-5)
    assert (
        best_cost(looped, [one, loops[1]], [3]) == best_cost(looped, [other, loops[0]], [4]) == float("inf")
    )
    with pytest.raises(UserError, match="self-loops already"):
        add_self_loops(looped, trans)
    with pytest.raises(UserError, match="transition-ids"):
        add_self_loops(graph.replaced(ilabels=graph.ilabels + trans.num_tids), trans)


def test_scales_multiply_costs(system):
    root, trans, _, _ = system
    (root / "scaled").mkdir(exist_ok=True)
    graph = make_hclg(
        root / "lang_test",
        root / "model",
        root / "scaled",
        GraphOptions(transition_scale=0.0, self_loop_scale=1.0),
    )
    lexicon, grammar = lexicon_and_grammar(root / "lang_test")
    for tids, words, _ in random_paths(graph, 5, stop=0.7):
        expected = transitions_cost(tids, trans, 0.0, 1.0) + composed_cost(
            lexicon, grammar, phones_of(tids, trans), words
        )
        assert best_cost(graph, tids, words) == pytest.approx(expected, abs=0.02)


def run_step(root, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "utils/make_graph.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)


def test_graph_step_runs_once(system):
    root, _, _, graph = system
    first, second = (run_step(root, "lang_test", "model", "step_graph") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert second.returncode == 0 and "up to date" in second.stdout
    assert read_fst(root / "step_graph/HCLG.fst").num_arcs == graph.num_arcs


def test_changed_phone_list_recomputes_graph(system, tmp_path):
    root, *_ = system
    shutil.copytree(root / "lang_test", tmp_path / "lang")
    assert run_step(tmp_path, "lang", root / "model", "graph").returncode == 0
    (tmp_path / "lang/phones/optional_silence.txt").write_text("another\n")
    again = run_step(tmp_path, "lang", root / "model", "graph")
    assert "up to date" not in again.stdout and "lang/phones" in again.stdout + again.stderr


def test_invalid_inputs_give_one_sentence_and_no_output(system, tmp_path):
    root, trans, tree, _ = system
    write_toy_lang(tmp_path / "other", num_phones=7)
    (tmp_path / "other/G.fst").write_bytes((root / "lang_test/G.fst").read_bytes())
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide/final.mdl").write_bytes((root / "model/final.mdl").read_bytes())
    ContextTree(1, 0, Leaf(trans.num_pdfs + 3)).write(tmp_path / "wide/tree")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/tree").write_bytes((root / "model/tree").read_bytes())
    (tmp_path / "cut/final.mdl").write_bytes((root / "model/final.mdl").read_bytes()[:200])
    cases = (
        (tmp_path / "other", root / "model", "trained with"),
        (root / "lang_test", tmp_path / "wide", "tree"),
        (root / "lang_test", tmp_path / "cut", "final.mdl"),
        (root / "lang", root / "model", "G.fst: no such file"),
        (root / "lang_test", tmp_path / "none", "no such file"),
    )
    for lang, model, complaint in cases:
        ended = run_step(tmp_path, lang, model, "graph")
        assert ended.returncode == 1 and complaint in ended.stderr and len(ended.stderr.splitlines()) == 1, (
            ended.stderr
        )
        assert not (tmp_path / "graph").exists()
