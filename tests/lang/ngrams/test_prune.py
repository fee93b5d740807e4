"""Pruning against relative entropies summed over all histories and words, and against kaldingram, which
prunes like SRILM."""

import math

import numpy as np
import pytest
from dense_lms import Reader, events, histories, ngrams, renormalized, rows, small_model, worst_sum
from steps_here import run_here
from toy_language import write_toy_lang

from pyasr.base.errors import UserError
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, perplexity, read_arpa, write_arpa
from pyasr.lang.ngrams.prune import (
    history_log_probabilities,
    perplexity_changes,
    prune_by_entropy,
    prune_low_probabilities,
)
from pyasr.lang.ngrams.trie import trie_of

WORDS = ["a", "b", "c", "d", "e"]


def without(model: Arpa, removed: set[tuple[int, ...]]) -> Arpa:
    """A copy without these n-grams, with new back-off weights."""
    tables = []
    for table in model.tables:
        kept = np.array([tuple(ids) not in removed for ids in table.ids.tolist()], bool)
        tables.append(NgramTable(table.ids[kept], table.logprob[kept], table.backoff[kept]))
    return renormalized(Arpa(model.words, tables))


def history_probability(model: Arpa, history: tuple[str, ...], of: Arpa | None = None) -> float:
    """p(w1) p(w2 | w1) ..., with p(</s>) for <s>."""
    probability, product = Reader(of or model), 1.0
    for i, word in enumerate(history):
        product *= probability(history[:i], "</s>" if (i, word) == (0, "<s>") else word)
    return product


def exhaustive_change(model: Arpa, gram: tuple[str, ...], of: Arpa | None = None) -> float:
    """exp(D) - 1 with D = sum over histories h, words w of P(h) p(w | h) ln (p(w | h) / p'(w | h)), p' being
    the model without the n-gram.

    The histories are those of its length: the rule leaves out what longer ones that back off to them would
    add.
    """
    before, after = Reader(model), Reader(without(model, {tuple(model.index[word] for word in gram)}))
    total = 0.0
    for history in histories(model):
        if len(history) == len(gram) - 1:
            old, new = ([reader(history, word) for word in events(model)] for reader in (before, after))
            total += history_probability(model, history, of) * math.fsum(
                p * math.log(p / q) for p, q in zip(old, new)
            )
    return math.expm1(total)


@pytest.mark.parametrize(("seed", "order"), [(0, 2), (1, 3), (2, 4)])
def test_changes_equal_relative_entropies(seed, order):
    model = renormalized(small_model(seed, WORDS[:4], order, 25))
    trie = trie_of(model, "lm")
    trie.normalize()
    probabilities = history_log_probabilities(trie)
    num = 0
    for n in range(2, order + 1):
        grams = [gram for gram in ngrams(trie.arpa()) if len(gram) == n]
        changes = perplexity_changes(trie, n, probabilities)
        assert len(changes) == len(grams)
        leaves = [
            i
            for i, gram in enumerate(grams)
            if not any(other[:n] == gram for other in ngrams(model) if len(other) > n)
        ]
        for i in leaves[::3]:
            assert changes[i] == pytest.approx(exhaustive_change(model, grams[i]), rel=1e-6, abs=1e-14), (
                grams[i]
            )
            num += 1
    assert num > 5


def test_history_probabilities_may_come_from_other_model():
    model, other = renormalized(small_model(1, WORDS[:3], 3, 25)), small_model(5, WORDS[:3], 2, 60)
    trie = trie_of(model, "lm")
    trie.normalize()
    changes = perplexity_changes(trie, 3, history_log_probabilities(trie, trie_of(other, "other")))
    grams = [gram for gram in ngrams(model) if len(gram) == 3]
    for gram, change in list(zip(grams, changes))[::4]:
        assert change == pytest.approx(exhaustive_change(model, gram, other), rel=1e-6, abs=1e-14)


def naive_entropy_pruning(model: Arpa, threshold: float, min_order: int) -> Arpa:
    """All n-grams of an order are evaluated with the original model, the highest order first. Histories of
    kept n-grams are kept."""
    removed: set[tuple[int, ...]] = set()
    for n in range(model.order, min_order - 1, -1):
        rows = [tuple(ids) for ids in model.tables[n - 1].ids.tolist()]
        longer = (
            {tuple(ids[:-1]) for ids in model.tables[n].ids.tolist() if tuple(ids) not in removed}
            if n < model.order
            else set()
        )
        removed |= {
            ids
            for ids in rows
            if ids not in longer and exhaustive_change(model, tuple(model.words[i] for i in ids)) < threshold
        }
    return without(model, removed)


def listed(model: Arpa) -> set[tuple[str, ...]]:
    return set(ngrams(model))


def assert_same_model(ours: Arpa, theirs: Arpa, tolerance: float) -> None:
    assert listed(ours) == listed(theirs)
    one, other = Reader(ours), Reader(theirs)
    for history in histories(ours):
        for word in events(ours):
            assert one(history, word) == pytest.approx(
                other(history[max(len(history) - theirs.order + 1, 0) :], word), rel=tolerance
            )


@pytest.mark.parametrize(("threshold", "min_order"), [(3e-4, 2), (3e-3, 2), (3e-3, 3)])
def test_pruned_model_equals_naive_pruning(threshold, min_order):
    model = renormalized(small_model(1, WORDS[:3], 3, 40))
    trie = trie_of(model, "lm")
    prune_by_entropy(trie, threshold, min_order)
    pruned = trie.arpa()
    assert_same_model(pruned, naive_entropy_pruning(model, threshold, min_order), 1e-9)
    assert len(listed(pruned)) < len(listed(model)) and worst_sum(pruned) < 1e-9
    assert min_order == 2 or len(pruned.tables[1]) == len(model.tables[1])


def test_large_threshold_keeps_only_unigrams():
    trie = trie_of(small_model(1, WORDS, 3), "lm")
    prune_by_entropy(trie, 1e3)
    pruned = trie.arpa()
    assert pruned.order == 1 and not pruned.tables[0].backoff.any() and worst_sum(pruned) < 1e-9


@pytest.mark.parametrize("threshold", [1e-5, 1e-4, 1e-3])
def test_pruned_model_equals_kaldingram(tmp_path, monkeypatch, threshold):
    prune = pytest.importorskip("kaldingram.prune")
    words = [f"w{i}" for i in range(40)]
    write_arpa(tmp_path / "full.arpa", small_model(7, words, 3, 600))
    model = read_arpa(tmp_path / "full.arpa")
    trie, theirs = trie_of(model, "lm"), prune.ArpaParser().loadf(tmp_path / "full.arpa")[0]
    # gives the history <s> probability 0, while SRILM's contextProb uses that of </s>
    own = theirs.log_joint_prob
    monkeypatch.setattr(
        theirs, "log_joint_prob", lambda history: own(("</s>",) if history == ("<s>",) else history)
    )
    prune_by_entropy(trie, threshold)
    prune.prune(theirs, threshold, 1)
    entries = (
        entry for n in range(1, theirs.order() + 1) for entry in theirs._entries(n) if entry[1] != ("<s>",)
    )
    ours = rows(trie.arpa())
    found = {words: (logprob, *weight, 0.0)[:2] for logprob, words, *weight in entries}
    assert 50 < len(ours) < len(listed(model)) and ours.keys() == found.keys()
    for gram, (logprob, backoff) in ours.items():
        assert (logprob, backoff) == pytest.approx(found[gram], abs=2e-5), gram


def naive_low_probabilities(model: Arpa, min_order: int) -> Arpa:
    """Remove, order by order, n-grams that are more probable by back-off, with new weights after each order,
    until nothing is removed. Then list missing histories of the rest with their back-off probabilities."""
    removed, number, current = set(), -1, model
    while number != len(removed):
        number = len(removed)
        for n in range(min_order, model.order + 1):
            removed |= set(low(current, removed, n))
            current = renormalized(current, removed)
    needed = {
        ids[:n]
        for table in model.tables
        for ids in map(tuple, table.ids.tolist())
        if ids not in removed
        for n in range(2, len(ids))
    }
    probability = Reader(current, removed)
    for table in current.tables[1:]:
        for row, ids in enumerate(map(tuple, table.ids.tolist())):
            table.logprob[row] = math.log10(probability._backed_off(ids[:-1], ids[-1]))
    return without(current, removed - needed)


def low(model: Arpa, removed: set, n: int) -> list[tuple[int, ...]]:
    """The n-grams of order `n`, except removed ones, that are more probable by back-off by more than
    rounding."""
    probability = Reader(model, removed)
    weights = {
        ids: 10**b
        for ids, b in zip(map(tuple, model.tables[n - 2].ids.tolist()), model.tables[n - 2].backoff)
    }
    return [
        ids
        for ids, logprob in zip(map(tuple, model.tables[n - 1].ids.tolist()), model.tables[n - 1].logprob)
        if ids not in removed
        and weights[ids[:-1]] * probability._backed_off(ids[1:-1], ids[-1]) > 10**logprob * (1 + 1e-9)
    ]


@pytest.mark.parametrize("min_order", [2, 3])
def test_ngrams_below_backoff_probability_are_removed(min_order):
    model = renormalized(noisy(small_model(3, [*WORDS, "f", "g", "h"], 3, 30)))
    assert len(low(model, set(), 2)) > 10 and len(low(model, set(), 3)) > 10
    trie = trie_of(model, "lm")
    prune_low_probabilities(trie, min_order)
    pruned = trie.arpa()
    assert worst_sum(pruned) < 1e-9 and not [
        ids for n in range(min_order, 4) for ids in low(pruned, set(), n)
    ]
    prefixes = {gram[:-1] for gram in listed(pruned)}
    assert {prefix for prefix in prefixes if prefix and prefix != ("<s>",)} <= listed(pruned)
    assert_same_model(pruned, naive_low_probabilities(model, min_order), 1e-6)


def noisy(model: Arpa) -> Arpa:
    """Interpolated models have few such n-grams, so this one has perturbed probabilities of an order."""
    rng = np.random.default_rng(0)
    tables = [model.tables[0]]
    for table in model.tables[1:]:
        tables.append(
            NgramTable(table.ids, table.logprob + np.log10(rng.uniform(0.3, 1.0, len(table))), table.backoff)
        )
    return Arpa(model.words, tables)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lm").mkdir()
    write_arpa(tmp_path / "lm/lm.arpa.gz", small_model(1, WORDS, 3, 60))
    return tmp_path


def prune(*words) -> None:
    run_here("prune_lm.py", *words, folder="utils")


def test_prune_lm_program(source, capsys):
    prune("--threshold", 1e-3, source / "lm", source / "pruned")
    model, output = read_arpa(source / "pruned/lm.arpa.gz"), capsys.readouterr().out
    full = read_arpa(source / "lm/lm.arpa.gz")
    for prefix, counted in (("before: ", full), ("", model)):
        assert (
            f": {prefix}{', '.join(f'{len(table)} {n}-grams' for n, table in enumerate(counted.tables, 1))}\n"
            in output
        )
    text = [["a", "b", "d"], ["c", "a"]]
    assert perplexity(model, text).perplexity == pytest.approx(perplexity(full, text).perplexity, rel=0.2)
    prune("--threshold", 1e-3, source / "lm", source / "pruned")
    assert "is up to date" in capsys.readouterr().out
    write_arpa(source / "bigrams", small_model(5, WORDS, 2, 60))
    prune("--threshold", 1e-3, "--history-lm", source / "bigrams", source / "lm/lm.arpa.gz", source / "other")
    assert listed(read_arpa(source / "other/lm.arpa.gz")) != listed(model)
    prune("--threshold", 1e-3, "--lowprobs", source / "lm", source / "both")
    assert listed(read_arpa(source / "both/lm.arpa.gz")) <= listed(model)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lm out", "no pruning is requested; give --threshold, such as 1e-7, or --lowprobs"),
        ("--threshold=-1e-7 lm out", "--threshold: -1e-7 is below the minimum 0"),
        ("--threshold x lm out", "--threshold: 'x' is not a number"),
        (
            "--lowprobs --min-order 4 lm out",
            "lm/lm.arpa.gz: its order is 3, below --min-order 4; nothing would be pruned",
        ),
        ("--lowprobs unigrams out", "unigrams: its order is 1, below --min-order 2"),
        ("--lowprobs --min-order 1 lm out", "--min-order: 1 is below the minimum 2"),
        ("--lowprobs --history-lm lm lm out", "--history-lm has no effect without --threshold"),
        (
            "--threshold 1e-7 --history-lm unigrams lm out",
            "unigrams: 3 words of the model to prune are not in it, such as 'c'",
        ),
        ("--threshold 1e-7 nowhere out", "nowhere: no such file or directory"),
        (
            "--threshold 1e-7 lm out.arpa",
            "out.arpa: the output is a directory with lm.arpa.gz in it; give a name",
        ),
        ("--threshold 1e-7 lm lm", "lm is an input and would be replaced by the output lm"),
        ("--threshold 1e-7 noend out", "noend: </s> has no unigram"),
        ("--threshold 1e-7 nothing out", "nothing: <s> has no unigram"),
    ],
)
def test_invalid_input_gives_one_sentence(source, monkeypatch, words, message):
    write_arpa(source / "unigrams", small_model(0, WORDS[:2], 1))
    (source / "noend").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1 <s>\n-1 a\n\n\\end\\\n")
    (source / "nothing").write_text("\\data\\\nngram 1=0\n\n\\1-grams:\n\n\\end\\\n")
    monkeypatch.chdir(source)
    with pytest.raises(UserError, match=message):
        prune(*words.split())
    assert not (source / "out").exists()


def test_pruned_model_becomes_grammar(tmp_path):
    lang = write_toy_lang(tmp_path / "lang", num_words=6)
    write_arpa(tmp_path / "full", small_model(2, [f"w{i}" for i in range(6)], 3, 80))
    prune("--threshold", 1e-3, "--lowprobs", tmp_path / "full", tmp_path / "pruned")
    run_here("make_grammar.py", lang, tmp_path / "pruned/lm.arpa.gz", tmp_path / "lang_test", folder="utils")
    words, model = LangDir(tmp_path / "lang_test").words, read_arpa(tmp_path / "pruned/lm.arpa.gz")
    grammar = BackoffLm.read(tmp_path / "lang_test", words)
    assert len(model.tables[2]) < len(read_arpa(tmp_path / "full").tables[2])
    for sentence in (["w0"], ["w1", "w5", "w5", "w2"], ["w3", "w4", "w0", "w1"], []):
        assert grammar.cost([words[word] for word in sentence]) == pytest.approx(
            -math.log(10) * perplexity(model, [sentence]).logprob, rel=1e-4
        )
