import kaldi_binaries
import numpy as np
import pytest
from fst_paths import best_cost, composed_cost, random_paths
from toy_language import random_ngrams, write_arpa_text, write_toy_lang

from pyasr.base.errors import UserError
from pyasr.io.openfst import read_fst, write_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.grammars.grammar import arpa_to_fst, make_grammar
from pyasr.lang.grammars.lg import compose_lg, make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.ngrams.arpa import read_arpa


@pytest.fixture(scope="module")
def lang(tmp_path_factory):
    root = tmp_path_factory.mktemp("lg")
    write_toy_lang(root / "lang", num_words=40)
    write_arpa_text(
        root / "lm.arpa", random_ngrams(0, [*(f"w{i}" for i in range(40)), "<unk>"], (0, 300, 300))
    )
    (root / "lang_test").mkdir()
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    return root / "lang_test"


def test_lg_costs_equal_lexicon_plus_grammar(lang):
    """For random words through LG, the cost is that of the pronunciation in L_disambig plus that of the words
    in G, computed separately."""
    lg, lexicon, grammar = make_lg(lang), read_fst(lang / "L_disambig.fst"), read_fst(lang / "G.fst")
    for phones, words, _ in random_paths(lg, 30, stop=0.5):
        expected = composed_cost(lexicon, grammar, phones, words)
        assert best_cost(lg, phones, words) == pytest.approx(expected, abs=0.002 + 0.001 * len(phones))


@kaldi_binaries.needed
def test_lg_equals_kaldi_programs(lang, tmp_path):
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


def test_grammar_of_other_lang_dir_is_refused(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=10)
    (other / "G.fst").write_bytes((lang / "G.fst").read_bytes())
    with pytest.raises(UserError, match=r"G\.fst: \d+ labels \(such as \d+\) are not in .*words\.txt"):
        make_lg(other)


def test_grammar_without_pronounceable_sentence_is_refused(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=40)
    grammar = read_fst(lang / "G.fst")
    write_fst(other / "G.fst", grammar.replaced(finals=np.full_like(grammar.finals, np.inf)))
    with pytest.raises(UserError, match="no sentence of G.fst has a pronunciation"):
        make_lg(other)


def test_truncated_grammar_is_refused(lang, tmp_path):
    other = write_toy_lang(tmp_path / "lang", num_words=40)
    (other / "G.fst").write_bytes((lang / "G.fst").read_bytes()[:-100])
    with pytest.raises(UserError, match=r"G\.fst: truncated or damaged FST"):
        make_lg(other)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf])
@pytest.mark.parametrize("name", ["G.fst", "L_disambig.fst"])
def test_arcs_with_infinite_cost_are_refused(lang, tmp_path, name, wrong):
    other = write_toy_lang(tmp_path / "lang", num_words=40)
    (other / "G.fst").write_bytes((lang / "G.fst").read_bytes())
    fst = read_fst(other / name)
    weights = fst.weights.copy()
    weights[3] = wrong
    write_fst(other / name, fst.replaced(weights=weights))
    with pytest.raises(
        UserError, match=rf"{name}: 1 arc\(s\) of infinite cost, the first from state \d+ .*; remove"
    ):
        make_lg(other)


IMPROBABLE = """\\data\\
ngram 1=5
ngram 2=4

\\1-grams:
-99 <s> -0.3
-0.7 </s>
-0.5 w0 BACKOFF
-0.4 w1 -0.2
PROBABILITY w2 -0.1

\\2-grams:
-0.2 <s> w0
PROBABILITY w0 w1
-0.3 w1 w2
-0.1 w2 w0

\\end\\
"""


@pytest.mark.parametrize("zero", ["PROBABILITY", "BACKOFF"])
def test_minus_infinity_in_model_equals_minus_99(tmp_path, zero):
    lang = LangDir(write_toy_lang(tmp_path / "lang", num_words=3))
    found = []
    for written in ("-inf", "-99"):
        text = IMPROBABLE.replace(zero, written).replace("PROBABILITY", "-0.6").replace("BACKOFF", "-0.25")
        (tmp_path / "lm.arpa").write_text(text)
        grammar, _ = arpa_to_fst(read_arpa(tmp_path / "lm.arpa"), lang.words)
        lg = compose_lg(read_fst(lang.lexicon_disambig_fst), grammar)
        sentences = [
            [lang.words[f"w{i}"] for i in sentence] for sentence in ([0], [0, 1], [1, 2, 0], [0, 2], [2, 2])
        ]
        models = [BackoffLm.from_fst(grammar, lang.words["#0"], best=best) for best in (True, False)]
        found.append(
            [[lm.cost(words) for words in sentences] for lm in models]
            + [[best_cost(lg, olabels=words) for words in sentences]]
        )
    assert np.isfinite(found).all() and np.max(found) > 99
    assert found[0] == found[1]
