"""Rescored lattices against the language models' costs of every path."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fst_paths import best_cost
from toy_language import random_ngrams, sentence_log10, write_arpa_text
from word_graphs import compact_paths, random_compact

from pyasr.decode.lattices.compact_lattice import empty_compact
from pyasr.decode.rescoring.lm_rescore import add_lm, rescore
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

SPOKEN = [f"w{i}" for i in range(5)]
WORDS = SymbolTable.of(["<eps>", *SPOKEN, "#0", "<s>", "</s>"])


def model(path, seed: int, order: int):
    """(n-grams, G) of a random model."""
    ngrams = random_ngrams(seed, SPOKEN, (0, 15, 30, 40)[:order])
    write_arpa_text(path / "m.arpa", ngrams)
    return ngrams, arpa_to_fst(read_arpa(path / "m.arpa"), WORDS)[0]


def lattices(num: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [random_compact(rng, num_states=8, num_words=len(SPOKEN)) for _ in range(num)]


@pytest.mark.parametrize("order", [1, 2, 4])
def test_every_path_gets_lm_cost_of_its_words(tmp_path, order):
    ngrams, grammar = model(tmp_path, 0, order)
    lm = BackoffLm.from_fst(grammar, WORDS["#0"])
    for lattice in lattices(15):
        before, after = compact_paths(lattice), compact_paths(add_lm(lattice, lm, 0.5))
        assert [row[:2] for row in before] == [row[:2] for row in after]
        for (_, words, graph, acoustic), (_, _, new_graph, same_acoustic) in zip(before, after):
            added = -math.log(10) * sentence_log10(ngrams, [WORDS.symbol(word) for word in words])
            assert (new_graph, same_acoustic) == (
                pytest.approx(graph + 0.5 * added, abs=1e-3),
                pytest.approx(acoustic, abs=1e-4),
            )


def test_old_model_is_subtracted_along_its_best_path(tmp_path):
    _, grammar = model(tmp_path, 1, 3)
    old = BackoffLm.from_fst(grammar, WORDS["#0"], best=True)
    ngrams, newer = model(tmp_path, 2, 4)
    new = BackoffLm.from_fst(newer, WORDS["#0"])
    for lattice in lattices(10):
        before, after = compact_paths(lattice), compact_paths(rescore(lattice, [(old, -1.0), (new, 1.0)]))
        for (_, words, graph, _), (_, _, new_graph, _) in zip(before, after):
            change = -math.log(10) * sentence_log10(ngrams, [WORDS.symbol(w) for w in words]) - best_cost(
                grammar, olabels=words
            )
            assert new_graph == pytest.approx(graph + change, abs=1e-3)


@pytest.mark.parametrize("best", [False, True])
def test_removing_and_adding_model_restores_lattice(tmp_path, best):
    lm = BackoffLm.from_fst(model(tmp_path, 3, 3)[1], WORDS["#0"], best=best)
    for lattice in lattices(10, 1):
        back = rescore(lattice, [(lm, -1.0), (lm, 1.0)])
        assert (np.diff(back.sources) >= 0).all() and (back.targets > back.sources).all()
        assert np.allclose(
            [row[2:] for row in compact_paths(back)], [row[2:] for row in compact_paths(lattice)], atol=1e-3
        )


def test_word_sequences_stay_unique_after_rescoring(tmp_path):
    lm = BackoffLm.from_fst(model(tmp_path, 4, 3)[1], WORDS["#0"], best=True)
    for lattice in lattices(30, 2):
        pairs = list(zip(lattice.sources.tolist(), lattice.words.tolist()))
        if len(set(pairs)) == len(pairs):
            rescored = add_lm(lattice, lm, 1.0)
            again = list(zip(rescored.sources.tolist(), rescored.words.tolist()))
            assert len(set(again)) == len(again)


def test_empty_lattices(tmp_path):
    lm = BackoffLm.from_fst(model(tmp_path, 0, 2)[1], WORDS["#0"])
    assert add_lm(empty_compact(), lm, 1.0).empty
