"""utils/train_lstm_lm.py on small texts: the model, the messages, and resuming after an interruption."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import torch
from lstm_lm_by_hand import random_lm, token_scores
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.base.pace import Pace
from pyasr.lang.ngrams.arpa import perplexity, read_arpa
from pyasr.lang.ngrams.train_lm import TextOptions
from pyasr.lang.ngrams.vocabulary import read_sentences
from pyasr.nn.networks.lstm_lm import load_lm
from pyasr.train.minibatches.sentences import NOTHING, Sentences
from pyasr.train.objectives import lstm_lm_training
from pyasr.train.objectives.lstm_lm_training import log_probabilities

WORDS, PAIRS = ["<unk>", "a", "b", "c", "d", "e"], ["a e", "b e", "c e", "d e"]
SMALL = (
    "--dim",
    16,
    "--minibatch",
    60,
    "--dropout",
    0,
    "--learning-rate",
    0.02,
    "--start-halving-gain",
    0,
    "--device",
    "cpu",
)


def write_text(path, num: int, seed: int) -> None:
    """Sentences such as `a e a e` or `c e c e c e`: what follows an e depends on the word before it."""
    rng = np.random.default_rng(seed)
    path.write_text(
        "".join(f"u{i} {' '.join(rng.integers(1, 5) * [rng.choice(PAIRS)])}\n" for i in range(num))
    )


@pytest.fixture
def corpus(tmp_path):
    write_text(tmp_path / "text", 300, 0)
    write_text(tmp_path / "heldout", 40, 1)
    with (tmp_path / "heldout").open("a") as f:
        f.write("v strange a e\n")
    (tmp_path / "words").write_text("\n".join([*WORDS, ""]))
    return tmp_path


def train(corpus, out, *flags, text="text", heldout="heldout", words="words"):
    run_here(
        "train_lstm_lm.py",
        *SMALL,
        *flags,
        corpus / text,
        corpus / heldout,
        corpus / words,
        out,
        folder="utils",
    )
    return load_lm(out)


def test_minibatches_have_each_sentence_once_grouped_by_length():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, 200)
    text = Sentences(rng.integers(1, 9, lengths.sum()), lengths)
    parts = text.minibatches(100, rng)
    assert sorted(np.concatenate(parts).tolist()) == list(range(200)) and len(parts) > 20
    assert max(lengths[part].max() - lengths[part].min() for part in parts) < 5
    assert max((lengths[part] + 1).sum() for part in parts) < 130
    assert [part.tolist() for part in parts] != [part.tolist() for part in text.minibatches(100, rng)]


def test_tensors_of_sentences():
    text = Sentences(np.array([5, 6, 7, 8]), np.array([1, 3]), oov=7)
    before, tokens = text.tensors(np.array([1, 0]))
    assert before.T.tolist() == [[0, 6, 7, 8], [0, 5, 0, 0]]
    assert tokens.T.tolist() == [[6, 7, 8, 0], [5, 0, NOTHING, NOTHING]]
    assert text.is_oov.tolist() == [False, False, False, True, False, False]
    assert text.in_order([np.array([1, 0])], [tokens.numpy()]).tolist() == [5, 0, 6, 7, 8, 0]


def test_text_probabilities_equal_those_of_single_sentences():
    rng, model = np.random.default_rng(0), random_lm(WORDS)
    lengths = rng.integers(1, 9, 30)
    text = Sentences(rng.integers(1, 7, lengths.sum()), lengths)
    expected = [
        score
        for sentence in np.split(text.flat, np.cumsum(lengths)[:-1])
        for score in token_scores(model, sentence.tolist())
    ]
    assert np.allclose(log_probabilities(model, text), expected, atol=1e-5)


def test_long_context_pattern_is_learned(corpus, capsys):
    """Reported perplexities are correct, also that of the n-gram model; the weight is stored."""
    run_here(
        "train_lm.py", "--order", 2, corpus / "text", corpus / "words", corpus / "bigram", folder="utils"
    )
    model = train(corpus, corpus / "lm", "--num-epochs", 15, "--ngram", corpus / "bigram")
    output = (corpus / "lm/perplexity.txt").read_text()
    lstm, ngram, both = (float(number) for number in re.findall(r"perplexity ([\d.]+),", output))
    assert (
        output.count("1 of them") == 3
        and "LSTM: " in output
        and f"{model.weight:.3f} LSTM + {1 - model.weight:.3f} n-gram: " in output
    )
    assert lstm < 0.85 * ngram and both <= min(lstm, ngram) + 0.05
    bigram = perplexity(read_arpa(corpus / "bigram/lm.arpa.gz"), read_sentences(corpus / "heldout"))
    assert f"{bigram.perplexity:.1f}" == f"{ngram:.1f}"
    text = Sentences.read(corpus / "heldout", WORDS, TextOptions())
    scores = [
        score
        for sentence in np.split(text.flat, np.cumsum(text.lengths)[:-1])
        for score in token_scores(model, sentence.tolist())
    ]
    counted = [score for score, oov in zip(scores, text.is_oov) if not oov]
    assert lstm == pytest.approx(math.exp(-np.mean(counted)), abs=0.06)
    assert "up to date" not in capsys.readouterr().out
    train(corpus, corpus / "lm", "--num-epochs", 15, "--ngram", corpus / "bigram")
    assert "up to date" in capsys.readouterr().out


def test_progress_within_epoch_is_reported(corpus, monkeypatch, capsys):
    """Periodically: here after every minibatch."""
    clock = itertools.count(1e6, 1000.0)
    monkeypatch.setattr(
        "pyasr.train.objectives.lstm_lm_training.Pace", lambda: Pace(clock=lambda: next(clock))
    )
    train(corpus, corpus / "lm", "--num-epochs", 2)
    report = re.findall(
        r"epoch (\d) of at most 2 \((\d+)% of it\), perplexity [\d.]+, learning rate 0.\d+, \d+ words/s, at "
        r"most .* left\n",
        capsys.readouterr().out,
    )
    assert {epoch for epoch, _ in report} == {"1", "2"} and report[-1] == ("2", "100")
    shares = [int(share) for epoch, share in report if epoch == "1"]
    assert shares == sorted(shares) and len(set(shares)) > 2


class Killed(BaseException):
    """Simulates the end of a process."""


def test_interrupted_training_gives_same_bits(corpus, monkeypatch, capsys):
    flags = ("--num-epochs", 5, "--dropout", 0.3, "--num-layers", 2)
    whole = train(corpus, corpus / "whole", *flags)
    save = lstm_lm_training.save_checkpoint

    def save_and_die(directory, comm, shared, own, frames):
        save(directory, comm, shared, own, frames)
        if shared["schedule"]["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(lstm_lm_training, "save_checkpoint", save_and_die)
        train(corpus, corpus / "again", *flags)
    assert not (corpus / "again").exists() and (corpus / "again.tmp/checkpoint").exists()
    resumed = train(corpus, corpus / "again", *flags)
    assert "resuming after epoch 2" in capsys.readouterr().out and not (corpus / "again/checkpoint").exists()
    for one, other in zip(whole.network.parameters(), resumed.network.parameters()):
        assert torch.equal(one, other)


def test_training_ends_without_improvement(corpus, capsys):
    train(corpus, corpus / "lm", "--num-epochs", 100, "--learning-rate", 0, "--start-halving-gain", 0.01)
    output = capsys.readouterr().out
    assert "epoch 2" in output and "epoch 3" not in output and "rejected" in output
    assert "without" not in output.replace(str(corpus), "") and load_lm(corpus / "lm").weight is None


def test_diverging_epoch_is_rejected(corpus, capsys):
    """Its loss, in nats, exceeds the logarithm of the largest float."""
    train(corpus, corpus / "lm", "--num-epochs", 1, "--learning-rate", 1e6)
    assert "inf held out, learning rate 1e+06; rejected" in capsys.readouterr().out
    output = re.search(r"perplexity ([\d.]+),", (corpus / "lm/perplexity.txt").read_text())
    assert float(output[1]) == pytest.approx(len(WORDS) + 1, rel=0.2)  # of an untrained network


@pytest.mark.parametrize(
    ("names", "content", "message"),
    [
        (dict(text="empty"), "", "empty: it contains no words"),
        (dict(heldout="empty"), "u1\n", "empty: it contains no words"),
        (dict(words="others"), "x\ny\n<unk>\n", "text: none of its words is in the vocabulary"),
        (
            dict(words="no-unk"),
            "a\nb\nc\nd\ne\n",
            "neither 'strange' nor the OOV word '<unk>' that would replace it is in the vocabulary",
        ),
        (dict(text="nowhere"), None, "nowhere: no such file"),
    ],
)
def test_invalid_texts_give_one_sentence(corpus, names, content, message):
    (name,) = names.values()
    if content is not None:
        (corpus / name).write_text(content)
    with pytest.raises(UserError, match=message):
        train(corpus, corpus / "lm", **names)
    assert not (corpus / "lm").exists()


def test_other_files_are_refused(corpus, tmp_path):
    model = random_lm(WORDS)
    model.save(tmp_path / "lm.nnet")
    assert load_lm(tmp_path).words == WORDS
    (tmp_path / "cut.nnet").write_bytes((tmp_path / "lm.nnet").read_bytes()[:-100])
    torch.save({"format": 2, "network": {}, "parameters": {}}, tmp_path / "final.nnet")
    for name, message in (
        ("cut.nnet", "not a whole LSTM language model file"),
        ("final.nnet", "not a whole LSTM language model file"),
        ("none.nnet", r"no such file; train the language model first \(utils/train_lstm_lm.py\)"),
    ):
        with pytest.raises(UserError, match=message):
            load_lm(tmp_path / name)
