"""Back-off models as automata, against the recursion over their n-grams and against all paths through G."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fst_paths import best_cost
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st
from toy_language import random_ngrams, sentence_log10, write_arpa_text

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.grammars.backoff_lm import BackoffLm, absent_from
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

SPOKEN = [f"w{i}" for i in range(8)]
WORDS = SymbolTable.of(["<eps>", *SPOKEN, "#0", "<s>", "</s>"])


def model(tmp_path, seed: int, order: int):
    """(n-grams, ARPA file, G)."""
    ngrams = random_ngrams(seed, SPOKEN, (0, 40, 60, 60, 60)[:order])
    write_arpa_text(tmp_path / "m.arpa", ngrams)
    return ngrams, tmp_path / "m.arpa", arpa_to_fst(read_arpa(tmp_path / "m.arpa"), WORDS)[0]


def sentences(num: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [rng.choice(SPOKEN, rng.integers(0, 9)).tolist() for _ in range(num)]


def ids(sentence) -> list[int]:
    return [WORDS[word] for word in sentence]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_strict_costs_equal_model_probabilities(tmp_path, order):
    for seed in range(3):
        ngrams, arpa, _ = model(tmp_path, seed, order)
        lm = BackoffLm.read(arpa, WORDS)
        for sentence in sentences(60, seed):
            assert lm.cost(ids(sentence)) == pytest.approx(
                -math.log(10) * sentence_log10(ngrams, sentence), abs=1e-4
            )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_best_costs_equal_best_path_through_g(tmp_path, order):
    dearer = 0
    for seed in range(3):
        _, _, grammar = model(tmp_path, seed, order)
        best, strict = (BackoffLm.from_fst(grammar, WORDS["#0"], best=best) for best in (True, False))
        for sentence in sentences(60, seed):
            expected = best_cost(grammar, olabels=ids(sentence))
            assert best.cost(ids(sentence)) == pytest.approx(expected, abs=1e-4)
            dearer += strict.cost(ids(sentence)) > expected + 1e-3
    assert dearer > 10 or order == 1


def test_lang_dirs_fst_and_arpa_files_give_same_model(tmp_path):
    _, arpa, grammar = model(tmp_path, 0, 3)
    write_fst(tmp_path / "G.fst", grammar)
    models = [BackoffLm.read(source, WORDS) for source in (tmp_path, tmp_path / "G.fst", arpa)]
    for sentence in sentences(20):
        assert len({lm.cost(ids(sentence)) for lm in models}) == 1


def test_grammar_projected_on_input_is_read(tmp_path):
    """Back-off arcs then have #0 on both sides."""
    _, _, grammar = model(tmp_path, 0, 3)
    projected = grammar.replaced(olabels=grammar.ilabels)
    one, other = (BackoffLm.from_fst(fst, WORDS["#0"]) for fst in (grammar, projected))
    assert [one.cost(ids(s)) for s in sentences(20)] == [other.cost(ids(s)) for s in sentences(20)]


def test_unknown_words_back_off_to_empty_history(tmp_path):
    ngrams, arpa, _ = model(tmp_path, 0, 3)
    lm = BackoffLm.read(arpa, SymbolTable.of([*WORDS.symbols, "new"]), oov_cost=7.0)
    assert lm.missing(np.array([0, 1, len(WORDS), 2])).tolist() == [len(WORDS)]
    before, after = SPOKEN[:2], SPOKEN[3:6]
    backing = sum(ngrams[n - 1].get(tuple(before[-n:]), (0, 0.0))[1] for n in (1, 2))
    log10 = word_log10(ngrams, ("<s>",), before) + backing + word_log10(ngrams, (), [*after, "</s>"])
    assert lm.cost([*ids(before), len(WORDS), *ids(after)]) == pytest.approx(
        7.0 - math.log(10) * log10, abs=1e-4
    )


def word_log10(ngrams, history, words) -> float:
    """log10 p(words | history) by the recursion."""

    def log10(history, word):
        gram = (*history, word)
        if gram in ngrams[len(gram) - 1]:
            return ngrams[len(gram) - 1][gram][0]
        return ngrams[len(history) - 1].get(history, (0, 0.0))[1] + log10(history[1:], word)

    total = 0.0
    for word in words:
        total += log10(history[len(history) - min(len(history), len(ngrams) - 1) :], word)
        history = (*history, word)
    return total


@pytest.mark.parametrize(
    ("arcs", "message"),
    [
        ([(0, 1, 1, 0.5, 0), (0, 1, 1, 0.7, 1)], "state 0 has two arcs for word 1"),
        ([(0, 9, 0, 0.5, 1), (0, 9, 0, 0.7, 2)], "state 0 has two arcs for backing off"),
        ([(0, 9, 0, 0.5, 1), (1, 9, 0, 0.7, 0)], "arcs without a word form a cycle"),
        (
            [(0, 1, 1, 0.5, 0), (0, 2, 2, math.inf, 1)],
            r"1 arc\(s\) of infinite cost, the first from state 0 with the labels 2:2; remove",
        ),
    ],
)
def test_other_grammars_are_refused(arcs, message):
    sources, ilabels, olabels, costs, targets = zip(*arcs)
    with pytest.raises(UserError, match=message):
        BackoffLm.from_fst(
            Fst.from_arcs(3, 0, sources, ilabels, olabels, costs, targets, {0: 0.0}), WORDS["#0"]
        )


def test_empty_and_missing_grammars_are_refused(tmp_path):
    with pytest.raises(UserError, match="the grammar is empty"):
        BackoffLm.from_fst(Fst.from_arcs(0, -1, [], [], [], [], []), WORDS["#0"])
    with pytest.raises(UserError, match="neither G.fst nor lm.arpa.gz in it"):
        BackoffLm.read(tmp_path, WORDS)


@given(numpy_st.arrays(np.int64, st.integers(0, 9), elements=st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_absent_ids_equal_set_difference(words, listed):
    assert absent_from(np.array(sorted(listed), np.int64), words).tolist() == sorted(
        set(words.tolist()) - listed
    )
