"""steps/lm_rescore_lstm.py on a small decode directory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lstm_lm_by_hand import random_lm, token_scores
from rescoring_toys import SPOKEN, WORDS, make_experiment, read_all
from steps_here import run_here
from toy_language import random_ngrams, token_log10s, write_arpa_text
from word_graphs import compact_paths

from pyasr.base.errors import UserError
from pyasr.lang.symbols import SymbolTable


@pytest.fixture
def exp(tmp_path):
    bare = make_experiment(tmp_path)
    model = replace(random_lm([*reversed(SPOKEN), "other"]), weight=0.25)
    (tmp_path / "lstm").mkdir()
    model.save(tmp_path / "lstm/lm.nnet")
    return tmp_path, bare, model


def rescore(root, *flags, lstm="lstm", lang="lang"):
    run_here(
        "lm_rescore_lstm.py",
        "--nj",
        2,
        "--device",
        "cpu",
        *flags,
        root / lang,
        root / lstm,
        root / "data",
        root / "decode",
        root / "new",
    )


def proper_ngrams() -> list:
    """4-grams in which backing off from a history without listed words has no cost, as in every normalised
    model."""
    orders = random_ngrams(1, SPOKEN, (0, 12, 20, 30))
    histories = {gram[:-1] for grams in orders for gram in grams}
    return [
        {gram: (score, backoff if gram in histories else 0.0) for gram, (score, backoff) in grams.items()}
        for grams in orders
    ]


@pytest.mark.parametrize(
    ("flags", "weight", "ngrams"),
    [
        ((), 0.25, random_ngrams(0, SPOKEN, (0, 12))),
        (("--lstm-weight", 0.6, "--ngram", "other.arpa"), 0.6, proper_ngrams()),
    ],
)
def test_rescored_lattices_have_costs_of_new_models_only(exp, flags, weight, ngrams, capsys):
    root, bare, model = exp
    write_arpa_text(root / "other.arpa", ngrams)
    flags = [root / flag if flag == "other.arpa" else flag for flag in flags]
    rescore(root, "--ngram-order", 20, "--rescore-beam", 1e6, *flags)
    assert f"weight {weight}, interpolated with" in capsys.readouterr().out
    found = read_all(root / "new")
    assert (root / "new/words.txt").read_text() == (root / "lang/words.txt").read_text()
    assert found.keys() == bare.keys() and found["b-3"].empty
    for utt, lattice in found.items():
        rows = list(zip(compact_paths(lattice), compact_paths(bare[utt]), strict=True))
        for (_, words, graph, acoustic), (_, _, before, same) in rows:
            names = [WORDS.symbol(word) for word in words]
            lstm = np.exp(token_scores(model, [model.words.index(name) + 1 for name in names]))
            added = -np.log((1 - weight) * 10 ** np.array(token_log10s(ngrams, names)) + weight * lstm).sum()
            assert (graph, acoustic) == (
                pytest.approx(before + added, abs=1e-3),
                pytest.approx(same, abs=1e-3),
            )


def test_words_missing_in_ngram_model_are_named(exp, capsys):
    root, _, _ = exp
    write_arpa_text(root / "small.arpa", random_ngrams(3, SPOKEN[:-1], (0, 8)))
    rescore(root, "--ngram", root / "small.arpa")
    assert "1 word(s) of" in capsys.readouterr().out


def test_rescored_lattices_are_not_rescored_again(exp):
    root, _, _ = exp
    rescore(root)
    (root / "new").rename(root / "rescored")
    (root / "decode").rename(root / "decoded")
    (root / "rescored").rename(root / "decode")
    with pytest.raises(
        UserError, match="by those of .*/lstm/lm.nnet and .*/lang/G.fst; rescore the original"
    ):
        rescore(root)


def poor_model(root):
    replace(random_lm(SPOKEN[1:3]), weight=0.5).save(root / "lstm/lm.nnet")


@pytest.mark.parametrize(
    ("spoil", "flags", "message"),
    [
        (
            poor_model,
            {},
            "the word 'w0' of .*/lang/words.txt and 1 more of its words are not in this language model",
        ),
        (
            lambda root: random_lm(SPOKEN[1:]).save(root / "lstm/lm.nnet"),
            {},
            "the word 'w0' of .*/words.txt is not in this language model",
        ),
        (
            lambda root: random_lm(SPOKEN).save(root / "lstm/lm.nnet"),
            {},
            "was trained without --ngram, .*; give --lstm-weight",
        ),
        (lambda root: (root / "lstm/lm.nnet").write_bytes(b"x"), {}, "not a whole LSTM language model file"),
        (lambda root: (root / "lstm/lm.nnet").unlink(), {}, "lm.nnet: no such file"),
        (
            lambda root: SymbolTable.of(["<eps>", "w1", "w0", *WORDS.symbols[3:]]).write(
                root / "lang4/words.txt"
            ),
            {"--ngram": "lang4"},
            "the word 'w0' does not have the same id as in",
        ),
        (
            lambda root: SymbolTable(
                {word: number for word, number in WORDS.ids.items() if word not in ("w2", "w3")}
            ).write(root / "lang/words.txt"),
            {},
            "word id [34] is not in .*words.txt; give the lang directory of the decoding graph",
        ),
    ],
)
def test_invalid_input_gives_one_sentence(exp, spoil, flags, message):
    root, _, _ = exp
    spoil(root)
    with pytest.raises(UserError, match=message):
        rescore(root, *(word for flag, name in flags.items() for word in (flag, root / name)))
    assert not (root / "new").exists()
