import numpy as np
import pytest

import kaldi_binaries
from fst_paths import best_cost, composed_cost, random_paths
from pyasr.base.errors import UserError
from pyasr.io.openfst import read_fst, write_fst
from pyasr.lang import fst_ops as ops
from pyasr.lang.grammar import make_grammar
from pyasr.lang.lg import make_lg
from toy_language import random_ngrams, write_arpa_text, write_toy_lang


@pytest.fixture(scope="module")
def lang(tmp_path_factory):
    root = tmp_path_factory.mktemp("lg")
    write_toy_lang(root / "lang", num_words=40)
    write_arpa_text(root / "lm.arpa", random_ngrams(0, [*(f"w{i}" for i in range(40)), "<unk>"], (0, 300, 300)))
    (root / "lang_test").mkdir()
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    return root / "lang_test"


def test_lg_costs_are_lexicon_plus_grammar(lang):
    """For random words through LG: the pronunciation's cost in L_disambig plus the words' in G, found apart."""
    lg, lexicon, grammar = make_lg(lang), read_fst(lang / "L_disambig.fst"), read_fst(lang / "G.fst")
    for phones, words, _ in random_paths(lg, 30, stop=0.5):
        expected = composed_cost(lexicon, grammar, phones, words)
        assert best_cost(lg, phones, words) == pytest.approx(expected, abs=0.002 + 0.001 * len(phones))


@kaldi_binaries.needed
def test_same_lg_as_kaldis_programs(lang, tmp_path):
    theirs = kaldi_binaries.make_lg(lang, tmp_path)
    ours = make_lg(lang)
    assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)
    for one in (ours, theirs):
        for phones, words, _ in random_paths(one, 40, stop=0.5):
            assert best_cost(ours, phones, words) == pytest.approx(best_cost(theirs, phones, words), abs=2e-3)


def test_lg_is_deterministic_and_pushed(lang):
    lg = make_lg(lang).arcsort("ilabel")
    same_state = np.diff(lg.sources) == 0
    assert (np.diff(lg.ilabels)[same_state] > 0).all()
    least, greatest = ops.stochasticity(lg)
    assert greatest - least < 0.01


def test_grammar_of_another_lang_dir(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=10)
    (other / "G.fst").write_bytes((lang / "G.fst").read_bytes())
    with pytest.raises(UserError, match=r"G\.fst: \d+ of its labels \(such as \d+\) are not in .*words\.txt"):
        make_lg(other)


def test_grammar_without_any_pronounceable_sentence(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=40)
    grammar = read_fst(lang / "G.fst")
    write_fst(other / "G.fst", grammar.replaced(finals=np.full_like(grammar.finals, np.inf)))
    with pytest.raises(UserError, match="no sentence of G.fst has a pronunciation"):
        make_lg(other)


def test_truncated_grammar(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=40)
    (other / "G.fst").write_bytes((lang / "G.fst").read_bytes()[:-100])
    with pytest.raises(UserError, match=r"G\.fst: truncated or damaged FST"):
        make_lg(other)
