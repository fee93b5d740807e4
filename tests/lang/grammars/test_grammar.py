import gzip
import subprocess
import sys
from pathlib import Path

import kaldi_binaries
import numpy as np
import pytest
from fst_paths import best_cost, random_paths
from toy_language import random_ngrams, sentence_log10, write_arpa_text, write_toy_lang

from pyasr.base.errors import UserError
from pyasr.io.openfst import read_fst
from pyasr.lang.grammars.grammar import arpa_to_fst, make_grammar
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

ROOT = Path(__file__).resolve().parents[3]
WORDS = [f"w{i}" for i in range(12)]
TABLE = SymbolTable.of(["<eps>", *WORDS, "#0", "<s>", "</s>"])


def grammar_of(tmp_path, orders, table=TABLE):
    write_arpa_text(tmp_path / "lm.arpa", orders)
    return arpa_to_fst(read_arpa(tmp_path / "lm.arpa"), table)


def without_labels(fst):
    """The grammar with #0 replaced by epsilon."""
    return fst.replaced(ilabels=np.where(fst.ilabels == TABLE["#0"], 0, fst.ilabels))


@pytest.mark.parametrize("counts", [(0,), (0, 60), (0, 150, 150), (0, 100, 100, 100)])
def test_sentence_costs_equal_backoff_recursion(tmp_path, counts):
    orders = random_ngrams(1, WORDS, counts)
    fst, dropped = grammar_of(tmp_path, orders)
    assert dropped.words == () and dropped.num_orphans == 0
    labels, costs = strict_costs(fst, orders)
    assert labels > 50 and costs < 2e-4


def strict_costs(fst, orders):
    """(number of sentences, largest difference) between G, followed arc by arc with back-off only for words
    without arc, and the recursion."""
    rng = np.random.default_rng(3)
    worst, num = 0.0, 0
    for _ in range(80):
        sentence = [WORDS[i] for i in rng.integers(0, len(WORDS), rng.integers(1, 8))]
        worst = max(
            worst,
            abs(
                -np.log(10) * sentence_log10(orders, sentence)
                - follow(fst, [TABLE[word] for word in sentence])
            ),
        )
        num += 1
    return num, worst


def follow(fst, labels):
    state, cost = fst.start, 0.0
    for label in [*labels, None]:
        while True:
            arcs = {int(fst.ilabels[a]): a for a in range(fst.arc_offsets[state], fst.arc_offsets[state + 1])}
            if label is None and np.isfinite(fst.finals[state]):
                return cost + float(fst.finals[state])
            a = arcs.get(label, arcs.get(TABLE["#0"]))
            state, cost = int(fst.nextstates[a]), cost + float(fst.weights[a])
            if fst.ilabels[a] == label:
                break


@kaldi_binaries.needed
@pytest.mark.parametrize("counts", [(0,), (0, 60), (0, 150, 150), (0, 100, 100, 100)])
def test_grammar_equals_arpa2fst(tmp_path, counts):
    fst, _ = grammar_of(tmp_path, random_ngrams(2, WORDS, counts))
    TABLE.write(tmp_path / "words.txt")
    symbols = f"--read-symbol-table={tmp_path}/words.txt"
    kaldi_binaries.run("arpa2fst", "--disambig-symbol=#0", symbols, tmp_path / "lm.arpa", tmp_path / "G.fst")
    theirs = read_fst(tmp_path / "G.fst")
    assert (fst.num_states, fst.num_arcs) == (theirs.num_states, theirs.num_arcs)
    for one, other in ((fst, theirs), (theirs, fst)):
        for ilabels, olabels, _ in random_paths(one, 40):
            assert best_cost(one, ilabels, olabels) == pytest.approx(
                best_cost(other, ilabels, olabels), abs=1e-3
            )


def test_unknown_words_and_histories_are_dropped_and_counted(tmp_path):
    orders = random_ngrams(4, [*WORDS, "strange"], (0, 200, 100))
    orders[2][("w1", "strange", "w2")] = (-1.0, 0.0)
    orders[2][("nowhere",) * 3] = (-1.0, 0.0)
    orders[0][("nowhere",)] = (-2.0, -0.1)
    with_strange = sum("strange" in gram or "nowhere" in gram for grams in orders for gram in grams)
    fst, dropped = grammar_of(tmp_path, orders)
    assert set(dropped.words) == {"strange", "nowhere"} and dropped.num_oov_ngrams == with_strange
    assert set(fst.ilabels.tolist()) <= set(TABLE.ids.values())


def test_make_grammar_copies_the_lang_dir(tmp_path):
    lang = write_toy_lang(tmp_path / "lang", num_words=12)
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(1, WORDS))
    (tmp_path / "lang_test").mkdir()
    make_grammar(lang, tmp_path / "lm.arpa", tmp_path / "lang_test")
    ours = {path.relative_to(lang) for path in lang.rglob("*")}
    assert {
        path.relative_to(tmp_path / "lang_test") for path in (tmp_path / "lang_test").rglob("*")
    } == ours | {Path("G.fst")}


def test_model_without_known_words_leaves_no_output(tmp_path):
    lang = write_toy_lang(tmp_path / "lang", num_words=3)
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(1, ["x", "y"]))
    command = [
        sys.executable,
        ROOT / "utils/make_grammar.py",
        lang,
        tmp_path / "lm.arpa",
        tmp_path / "lang_test",
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    )
    assert (
        ended.returncode == 1
        and "none of its words is in" in ended.stderr
        and len(ended.stderr.splitlines()) == 1
    )
    assert not (tmp_path / "lang_test").exists()


def test_upper_case_model_is_reported(tmp_path):
    """Also for a gzipped model, and if the unknown word is known."""
    lang = write_toy_lang(tmp_path / "lang", num_words=3)
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(1, ["W0", "W2"]))
    (tmp_path / "lm.arpa.gz").write_bytes(gzip.compress((tmp_path / "lm.arpa").read_bytes()))
    with pytest.raises(
        UserError,
        match="none of its words is in .*; 2 of its words are there in another case, W0 as w0: convert",
    ):
        make_grammar(lang, tmp_path / "lm.arpa.gz", tmp_path / "lang_test")


@pytest.mark.parametrize("symbol", ["#0", "<s>", "</s>"])
def test_table_without_special_symbol_is_refused(symbol, tmp_path):
    table = SymbolTable.of(["<eps>", *WORDS, *({"#0", "<s>", "</s>"} - {symbol})])
    with pytest.raises(UserError, match=f"no {symbol}, the symbol of"):
        grammar_of(tmp_path, random_ngrams(1, WORDS), table)


def test_words_starting_like_disambiguation_symbols_are_words(tmp_path):
    """In words.txt, only #0 is a disambiguation symbol."""
    table = SymbolTable.of(["<eps>", *WORDS, "#1", "#0", "<s>", "</s>"])
    fst, dropped = grammar_of(tmp_path, random_ngrams(1, [*WORDS, "#1"]), table)
    assert not dropped.words and table["#1"] in fst.ilabels
