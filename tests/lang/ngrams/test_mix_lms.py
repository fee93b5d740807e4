"""Static mixtures against the weighted mean by the definition; their weights against a grid search."""

import itertools
import math

import mitlm
import numpy as np
import pytest
from dense_lms import Reader, assert_same_tables, events, ngrams, small_model, worst_sum
from rescoring_toys import SPOKEN, make_experiment, read_all
from rescoring_toys import WORDS as SYMBOLS
from steps_here import run_here
from word_graphs import compact_paths

from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, perplexity, read_arpa, text_scores, write_arpa
from pyasr.lang.ngrams.mix import mixture
from pyasr.lang.ngrams.mixture import best_weight, em_weights
from pyasr.lang.ngrams.trie import trie_of

WORDS = ["a", "b", "c", "d", "<unk>"]
HELD_OUT = "u1 a b a d\nu2 b e a c c\nu3\nu4 d zz a\nu5 a a b\n"


def models() -> list[Arpa]:
    """Three models of different orders and vocabularies."""
    return [
        small_model(0, WORDS, 3),
        small_model(1, ["d", "a", "e", "b", "<unk>"], 4, 90),
        small_model(2, ["a", "c", "b"], 2),
    ]


def mixed(parts: list[Arpa], weights, **options) -> Arpa:
    return mixture([trie_of(part, "lm") for part in parts], np.array(weights), **options).arpa()


def probability_in(part: Arpa, history: tuple, word: str, share: int = 0) -> float:
    """p(word | history) under one of the models. If `share` is given, each of
    `share` unknown words has an equal share of <unk>."""
    history = tuple(w if w in part.words else "<unk>" for w in history)
    if "<unk>" not in part.words:
        history = history[max((i + 1 for i, w in enumerate(history) if w == "<unk>"), default=0) :]
    history = history[max(len(history) - part.order + 1, 0) :]
    if word in part.words and not (share and word == "<unk>"):
        return Reader(part)(history, word)
    return Reader(part)(history, "<unk>") / share if share and "<unk>" in part.words else 0.0


@pytest.mark.parametrize("weights", [(0.2, 0.5, 0.3), (0.9, 0.05, 0.05)])
def test_every_ngram_has_weighted_mean(weights):
    parts = models()
    mix = mixed(parts, weights)
    assert set(ngrams(mix)) == {gram for part in parts for gram in ngrams(part)} and mix.order == 4
    probability = Reader(mix)
    for *history, word in ngrams(mix):
        expected = sum(
            weight * probability_in(part, tuple(history), word) for weight, part in zip(weights, parts)
        )
        assert probability(tuple(history), word) == pytest.approx(expected, rel=1e-9), (history, word)


def test_probabilities_sum_to_one_after_every_history():
    assert worst_sum(mixed(models(), (0.2, 0.5, 0.3))) < 1e-9


def test_unigrams_are_mixed():
    mix = mixed([small_model(0, WORDS, 1), small_model(1, ["a", "f"], 1)], (0.5, 0.5))
    assert mix.order == 1 and worst_sum(mix) < 1e-9 and "f" in mix.words


def test_improper_models_are_normalised():
    """After a, the only listed word has probability 1; after b, all words are listed, with a sum of 0.8;
    after c, the sum is 1.3."""
    words, p = ["a", "b", "c", "<s>", "</s>"], np.log10
    unigrams = NgramTable(
        np.arange(5, dtype=np.int32)[:, None], p([0.2, 0.3, 0.4, 1e-99, 0.1]), np.array([-99.0, 0, 0, 0, 0])
    )
    bigrams = {(0, 1): 1.0, (1, 0): 0.2, (1, 1): 0.2, (1, 2): 0.2, (1, 4): 0.2, (2, 0): 0.5, (2, 2): 0.8}
    part = Arpa(
        words,
        [unigrams, NgramTable(np.array(list(bigrams), np.int32), p(list(bigrams.values())), np.zeros(7))],
    )
    mix = mixed([part, part], (0.5, 0.5))
    probability = Reader(mix)
    assert worst_sum(mix) < 1e-9
    assert probability(("a",), "b") == pytest.approx(1, abs=2e-6) and 0 < probability(("a",), "c") < 1e-5
    assert probability(("b",), "a") == pytest.approx(0.25) and probability(("c",), "c") == pytest.approx(
        0.8 / 1.3, rel=1e-5
    )


def test_missing_words_share_probability_of_unknown_word():
    parts, weights = models()[:2], (0.25, 0.75)
    mix = mixed(parts, weights, share_unknown=True)
    probability = Reader(mix)
    for *history, word in ngrams(mix):
        expected = sum(
            weight * probability_in(part, tuple(history), word, share=2)
            for weight, part in zip(weights, parts)
        )
        assert probability(tuple(history), word) == pytest.approx(expected, rel=1e-9), (history, word)
    assert probability((), "c") > Reader(mixed(parts, weights))((), "c") and worst_sum(mix) < 1e-9


def test_model_mixed_with_itself_is_unchanged():
    part = small_model(3, WORDS, 3, min_counts=(1, 2))
    mix = mixed([part, part], (0.3, 0.7))
    before, after = Reader(part), Reader(mix)
    assert ngrams(part) == ngrams(mix)
    for history in [(), ("a",), ("<s>", "b"), ("c", "d"), ("d", "d")]:
        assert [after(history, word) for word in events(mix)] == pytest.approx(
            [before(history, word) for word in events(mix)], rel=1e-9
        )


def test_ngrams_with_unlisted_history_are_skipped(caplog):
    part = small_model(0, WORDS, 3)
    number = part.index
    stray = np.array(
        [[number["c"], number["</s>"], number["a"]], [number["a"], number["<s>"], number["b"]]], np.int32
    )
    bigrams = {tuple(ids) for ids in part.tables[1].ids.tolist()}
    unlisted = next(pair for pair in itertools.product(range(5), repeat=2) if pair not in bigrams)
    last = part.tables[2]
    ids = np.concatenate([last.ids, stray, np.array([[*unlisted, number["a"]]], np.int32)])
    with_stray = Arpa(
        part.words,
        [*part.tables[:2], NgramTable(ids, np.r_[last.logprob, -0.1, -0.1, -0.1], np.zeros(len(ids)))],
    )
    assert ngrams(trie_of(with_stray, "odd.arpa").arpa()) == ngrams(trie_of(part, "lm").arpa())
    assert "odd.arpa: 3 n-grams skipped, because their history is not listed" in caplog.text


def test_em_weights_maximise_likelihood():
    rng = np.random.default_rng(0)
    chosen, tables = rng.choice(3, 3000, p=(0.6, 0.3, 0.1)), rng.dirichlet(np.ones(6), (3, 3000))
    words = (tables[chosen, np.arange(3000)].cumsum(1) < rng.random((3000, 1))).sum(1).clip(max=5)
    scores = np.log(tables[:, np.arange(3000), words])
    scores[2, :50] = -np.inf
    means = [(weights, mean) for weights, mean in em_weights(scores, 1e-7)]
    assert all(later >= earlier - 1e-12 for (_, earlier), (_, later) in itertools.pairwise(means))
    grid = [(i / 50, j / 50, 1 - (i + j) / 50) for i in range(1, 50) for j in range(1, 50 - i)]
    best = max(grid, key=lambda weights: np.log(np.array(weights) @ np.exp(scores)).sum())
    assert means[-1][0] == pytest.approx(best, abs=0.02) and means[-1][0].sum() == pytest.approx(1)
    assert np.log(means[-1][0] @ np.exp(scores)).mean() == pytest.approx(means[-1][1], abs=1e-12)
    *_, (pair, _) = em_weights(scores[:2], 1e-8)
    assert pair[1] == pytest.approx(best_weight(*scores[:2]), abs=2e-4)


@mitlm.needed
def test_mixture_equals_mitlm_with_equal_weights(tmp_path):
    """The perplexity also equals MITLM's. Its search for weights minimises that of the static mixture, so EM
    gets close to it."""
    words = [f"w{i}" for i in range(60)]
    for seed, name in enumerate("ab"):
        mitlm.write(tmp_path / name, small_model(seed, words, 3, (300, 100)[seed]))
    rng = np.random.default_rng(5)
    text = [[words[i] for i in rng.integers(0, 60, rng.integers(1, 8))] for _ in range(200)]
    (tmp_path / "dev").write_text("".join(f"{' '.join(sentence)}\n" for sentence in text))
    parts, dev = [read_arpa(tmp_path / name) for name in "ab"], tmp_path / "dev"
    mixing = ("interpolate-ngram", "-i", "LI", "-l", f"{tmp_path}/a,{tmp_path}/b", "-ep", dev)
    output = mitlm.run(*mixing, "-wl", tmp_path / "equal")
    assert_same_tables(mixed(parts, (0.5, 0.5)), read_arpa(tmp_path / "equal"))
    assert perplexity(read_arpa(tmp_path / "equal"), text).perplexity == pytest.approx(
        float(output.split()[-1]), abs=1e-3
    )
    scores = np.log(10) * np.stack([text_scores(part, text)[0] for part in parts])
    *_, (weights, _) = em_weights(scores, 1e-5)
    best = float(mitlm.run(*mixing, "-op", dev).split()[-1])
    assert best <= perplexity(mixed(parts, weights), text).perplexity * 1.0001 <= best * 1.001


@pytest.fixture
def files(tmp_path):
    """ARPA files of the models, one in a directory written by train_lm.py, and a held-out text."""
    for part, name in zip(models(), ("one.arpa.gz", "two/lm.arpa.gz", "three.arpa")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_arpa(tmp_path / name, part)
    (tmp_path / "heldout").write_text(HELD_OUT)
    return tmp_path


def mix(*words) -> None:
    run_here("mix_lms.py", *words, folder="utils")


@pytest.mark.parametrize("lacking", ["zero", "share"])
def test_mix_lms_logs_each_iteration(files, capsys, lacking):
    sources = [files / name for name in ("one.arpa.gz", "two", "three.arpa")]
    mix("--lacking", lacking, "--heldout", files / "heldout", files / "mix", *sources)
    output = capsys.readouterr().out
    for source, model in zip((sources[0], sources[1] / "lm.arpa.gz", sources[2]), models()):
        assert (
            f"{source}: perplexity {perplexity(model, sentences()).perplexity:.1f}, 5 sentences, 15 words"
            in output
        )
    weights = [float(line.split()[0]) for line in (files / "mix/weights").read_text().splitlines()]
    assert sum(weights) == pytest.approx(1, abs=1e-5) and min(weights) >= 0
    *_, last = (line for line in output.splitlines() if "iteration" in line)
    assert "iteration 0: perplexity" in output and last.endswith(
        "weights " + " ".join(f"{weight:.4f}" for weight in weights)
    )
    assert float(last.split("perplexity ")[1].split(",")[0]) == pytest.approx(
        dense_perplexity(weights, lacking), rel=2e-4
    )
    assert "heldout: perplexity" in (files / "mix/perplexity.txt").read_text()
    mix("--lacking", lacking, "--heldout", files / "heldout", files / "mix", *sources)
    assert "is up to date" in capsys.readouterr().out
    mix("--lacking", lacking, "--weights", ",".join(map(str, weights)), files / "again", *sources)
    ours, theirs = read_arpa(files / "mix/lm.arpa.gz"), read_arpa(files / "again/lm.arpa.gz")
    assert [table.logprob for table in ours.tables][1] == pytest.approx(
        [table.logprob for table in theirs.tables][1], abs=1e-4
    )


def sentences() -> list[list[str]]:
    return [line.split()[1:] for line in HELD_OUT.splitlines()]


def dense_perplexity(weights, lacking: str) -> float:
    """Perplexity of the mean of the models, by the definition, over the words that at least one of them
    knows, except <unk>."""
    logs, share = [], 2 if lacking == "share" else 0
    for sentence in sentences():
        tokens = ["<s>", *sentence, "</s>"]
        for i, word in enumerate(tokens[1:], 1):
            means = [
                weight * probability_in(part, tuple(tokens[:i]), word, share)
                for weight, part in zip(weights, models())
            ]
            logs += [math.log(sum(means))] if word != "zz" else []
    return math.exp(-sum(logs) / len(logs))


def test_models_with_weight_0_are_skipped(files):
    mix("--weights", "1,0,0", files / "mix", files / "one.arpa.gz", files / "two", files / "three.arpa")
    assert ngrams(read_arpa(files / "mix/lm.arpa.gz")) == ngrams(read_arpa(files / "one.arpa.gz"))
    assert [float(line.split()[0]) for line in (files / "mix/weights").read_text().splitlines()] == [1, 0, 0]


@pytest.mark.parametrize(
    ("words", "sources", "message"),
    [
        (
            "--weights 0.5,0.6",
            "one.arpa.gz two",
            "--weights: '0.5,0.6' sums to 1.1, not to 1; correct the numbers",
        ),
        (
            "--weights 1.5,-0.5",
            "one.arpa.gz two",
            "--weights: '1.5' in '1.5,-0.5' is not a number from 0 to 1",
        ),
        ("--weights 0.5,x", "one.arpa.gz two", "--weights: 'x' in '0.5,x' is not a number from 0 to 1"),
        ("--weights 0.5,nan", "one.arpa.gz two", "--weights: 'nan' in '0.5,nan' is not a number from 0 to 1"),
        (
            "--weights 0.2,0.8",
            "one.arpa.gz two three.arpa",
            "--weights: 2 numbers in '0.2,0.8' for 3 models; give one for each",
        ),
        ("--weights 1", "one.arpa.gz", "a mixture needs two models or more"),
        ("", "one.arpa.gz two", "neither of --weights and --heldout given; give one of them"),
        (
            "--weights 0.5,0.5 --heldout heldout",
            "one.arpa.gz two",
            "both of --weights and --heldout given; give one of them",
        ),
        ("--heldout strange", "one.arpa.gz two", "strange: the models have none of its words; give a text"),
        ("--heldout empty", "one.arpa.gz two", "empty: no words in it; give a text of sentences"),
        ("--heldout marked", "one.arpa.gz two", "marked: '<s>' is reserved and cannot be a word"),
        ("--heldout nowhere", "one.arpa.gz two", "nowhere: no such file or directory"),
        ("--weights 0.5,0.5", "one.arpa.gz nowhere", "nowhere: no such file or directory"),
        (
            "--weights 0.5,0.5",
            "one.arpa.gz endless",
            "endless: </s> has no unigram, so sentences have no probability",
        ),
        (
            "--weights 0.5,0.5",
            "one.arpa.gz heldout",
            "heldout:1: no .data. line; not a language model in ARPA format",
        ),
        ("--weights 0.5,0.5", "one.arpa.gz short", "short:.*: 3 1-grams, but the header promises 4"),
        (
            "--weights 0.5,0.5 --tolerance 1e-3",
            "one.arpa.gz two",
            "--tolerance has no effect without --heldout",
        ),
        ("--heldout heldout --tolerance 0", "one.arpa.gz two", "--tolerance: 0 is below the minimum"),
    ],
)
def test_invalid_input_gives_one_sentence(files, monkeypatch, words, sources, message):
    (files / "strange").write_text("u1 <unk> zz\n")
    (files / "empty").write_text("u1\nu2\n")
    (files / "marked").write_text("u1 <s> a </s>\n")
    (files / "endless").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1 <s>\n-1 a\n\n\\end\\\n")
    (files / "short").write_text("\\data\\\nngram 1=4\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 a\n\n\\end\\\n")
    monkeypatch.chdir(files)
    with pytest.raises(UserError, match=message):
        mix(*words.split(), "mix", *sources.split())
    assert not (files / "mix").exists()
    with pytest.raises(
        UserError, match="mix.arpa.gz: the output is a directory with lm.arpa.gz in it; give a name"
    ):
        mix("--weights", "0.5,0.5", "mix.arpa.gz", "one.arpa.gz", "two")


def test_mixture_rescores_lattices(tmp_path):
    bare = make_experiment(tmp_path)
    for seed, name in ((0, "one"), (1, "two")):
        write_arpa(tmp_path / name, small_model(seed, SPOKEN, 4, 80))
    mix("--weights", "0.5,0.5", tmp_path / "mix", tmp_path / "one", tmp_path / "two")
    model = read_arpa(tmp_path / "mix/lm.arpa.gz")
    run_here(
        "lm_rescore.py", "--nj", 2, *(tmp_path / name for name in ("lang", "mix", "data", "decode", "new"))
    )
    assert model.order == 4
    for utt, lattice in read_all(tmp_path / "new").items():
        for (_, words, graph, _), (_, _, before, _) in zip(compact_paths(lattice), compact_paths(bare[utt])):
            spoken = [SYMBOLS.symbol(word) for word in words]
            assert graph == pytest.approx(
                before - math.log(10) * perplexity(model, [spoken]).logprob, abs=1e-3
            )
