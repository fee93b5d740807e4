import functools
import itertools
import math
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import mitlm
import numpy as np
import pytest
from dense_lms import Reader, assert_same_tables
from steps_here import run_here

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import read_done
from pyasr.lang.ngrams.arpa import NgramScorer, perplexity, read_arpa, write_arpa
from pyasr.lang.ngrams.ngram import discounts, estimate
from pyasr.lang.ngrams.train_lm import NgramOptions, make_lm, read_ids, train
from pyasr.lang.ngrams.vocabulary import read_vocabulary

ROOT = Path(__file__).resolve().parents[3]
NUM_WORDS = 200
WORDS = [f"w{i}" for i in range(NUM_WORDS)]


@functools.cache
def markov_text(num=1500, seed=0):
    """Sentences with structure: words follow Zipf's law, and each has a few preferred successors."""
    rng = generator(seed, "markov")
    zipf = 1 / np.arange(1, NUM_WORDS + 1)
    follow = np.cumsum(rng.dirichlet(5 * zipf / zipf.sum(), size=NUM_WORDS), 1)
    sentences = []
    for _ in range(num):
        sentence = [int(rng.choice(NUM_WORDS, p=zipf / zipf.sum()))]
        for _ in range(int(rng.integers(0, 7))):
            sentence.append(min(int(np.searchsorted(follow[sentence[-1]], rng.random())), NUM_WORDS - 1))
        sentences.append(np.array(sentence))
    return sentences


class PlainKneserNey:
    """The formulas of Chen and Goodman with dictionaries and recursion."""

    def __init__(self, sentences, words, order, least=None):
        self.order, self.num_words = order, len(words) + 1  # with </s>
        self.raw = [Counter() for _ in range(order + 1)]
        for sentence in sentences:
            tokens = ["<s>", *(words[i] for i in sentence), "</s>"]
            for n in range(1, order + 1):
                for i in range(len(tokens) - n + 1):
                    self.raw[n][tuple(tokens[i : i + n])] += 1
        self.adjusted = [None] * (order + 1)
        for n in range(1, order + 1):
            before = defaultdict(set)
            for gram in self.raw[n + 1] if n < order else ():
                before[gram[1:]].add(gram[0])
            self.adjusted[n] = {
                gram: count if n == order or gram[0] == "<s>" else len(before[gram])
                for gram, count in self.raw[n].items()
            }
        self.adjusted[1].pop(("<s>",))
        self.discounts = [None] + [self._discounts(n) for n in range(1, order + 1)]
        self.least = least or [1] * (order + 1)

    def _discounts(self, n):
        k = Counter(self.adjusted[n].values())
        y = k[1] / (k[1] + 2 * k[2])
        return [0.0] + [i - (i + 1) * y * k[i + 1] / k[i] for i in (1, 2, 3)]

    def probability(self, history, word):
        n = len(history) + 1
        lower = 1 / self.num_words if n == 1 else self.probability(history[1:], word)
        followers = {gram: count for gram, count in self.adjusted[n].items() if gram[:-1] == history}
        if not followers:
            return lower
        total, kept, freed = sum(followers.values()), 0.0, 0.0
        for gram, count in followers.items():
            discount = (
                count if n > 1 and self.raw[n][gram] < self.least[n] else self.discounts[n][min(count, 3)]
            )
            freed += discount
            if gram[-1] == word:
                kept = count - discount
        return kept / total + freed / total * lower


@pytest.mark.parametrize(
    ("order", "min_counts"), [(1, ()), (2, ()), (3, ()), (3, (1, 2)), (3, (2, 3)), (4, ())]
)
def test_probabilities_equal_formulas(order, min_counts):
    sentences = markov_text()
    model = estimate(sentences, WORDS, order, min_counts)
    probability = Reader(model)
    plain = PlainKneserNey(
        sentences, WORDS, order, [1, 1, *min_counts, *[max(min_counts, default=1)] * order]
    )
    rng = np.random.default_rng(1)
    for _ in range(60):
        history = tuple(rng.choice(WORDS, order - 1))
        if order > 1 and rng.random() < 0.3:
            history = ("<s>", *history[1:])
        word = str(rng.choice([*WORDS, "</s>"]))
        assert probability(history, word) == pytest.approx(plain.probability(history, word), rel=1e-9)


@pytest.mark.parametrize("min_counts", [(), (2, 2)])
def test_probabilities_sum_to_one_over_the_vocabulary(min_counts):
    """Also with words of the vocabulary that do not occur in the text, and after unseen histories."""
    words = [*WORDS, "<unk>", "never", "neither"]
    model = estimate(markov_text(), words, 3, min_counts)
    probability = Reader(model)
    rng = np.random.default_rng(0)
    histories = [
        ("<s>",),
        ("never", "w1"),
        ("w1", "never"),
        *(tuple(rng.choice(words, 2)) for _ in range(12)),
        ("<s>", "w3"),
    ]
    for history in histories:
        probabilities = [probability(history, word) for word in [*words, "</s>"]]
        assert sum(probabilities) == pytest.approx(1, abs=1e-9) and min(probabilities) > 0


def test_sentence_begin_has_no_probability():
    model = estimate(markov_text(50), WORDS, 2)
    assert model.tables[0].logprob[model.index["<s>"]] == -99.0
    assert not (model.tables[1].ids[:, 1] == model.index["<s>"]).any()


def test_min_counts_drop_rare_ngrams():
    sentences = markov_text()
    full, cut = estimate(sentences, WORDS, 3), estimate(sentences, WORDS, 3, (1, 2))
    assert len(cut.tables[1]) == len(full.tables[1]) and len(cut.tables[2]) < len(full.tables[2])
    assert len(cut.tables[0]) == len(WORDS) + 2


def test_every_history_is_listed():
    model = estimate(markov_text(), WORDS, 4, (1, 2, 2))
    for lower, higher in itertools.pairwise(model.tables):
        known = set(map(tuple, lower.ids.tolist()))
        assert all(tuple(ids[:-1]) in known and tuple(ids[1:]) in known for ids in higher.ids.tolist())


@pytest.mark.parametrize("sentences", [[[0]], [[0], [0]], [[0, 1], [2]], [[]], [[0, 1, 2, 3, 4, 5]] * 50])
def test_tiny_and_repetitive_texts_give_distributions(sentences):
    if not any(sentences):
        with pytest.raises(UserError, match="no words"):
            estimate([np.array(s, int) for s in sentences], WORDS, 3)
        return
    model = estimate([np.array(s, int) for s in sentences], WORDS, 3)
    probability = Reader(model)
    for history in (("<s>",), ("w0",), ("w0", "w1")):
        assert sum(
            probability(history[-(model.order - 1) :], word) for word in [*WORDS, "</s>"]
        ) == pytest.approx(1, abs=1e-9)


def test_discounts_have_defaults_without_counts_of_counts():
    assert discounts(np.array([1, 1, 1])).tolist() == [0.5, 1.0, 1.5]
    assert discounts(np.array([1, 1, 2])).tolist() == [0.5] * 3
    estimated = discounts(np.repeat([1, 2, 3, 4], [100, 40, 20, 12]))
    assert (np.diff(estimated) > 0).all() and 0 < estimated[0] < 1


def test_impossible_min_counts_are_refused():
    with pytest.raises(UserError, match="must not fall with the order"):
        estimate(markov_text(10), WORDS, 3, (2, 1))


@mitlm.needed
@pytest.mark.parametrize("order", [2, 3])
def test_model_equals_mitlm(tmp_path, order):
    """The same n-grams with the same probabilities and back-off weights to the 6 decimals that both write, so
    the same perplexity."""
    sentences = markov_text(3000)
    train_text, test_text = sentences[:2500], sentences[2500:]
    for name, part in (("train", train_text), ("test", test_text)):
        (tmp_path / name).write_text("".join(" ".join(WORDS[i] for i in s) + "\n" for s in part))
    (tmp_path / "vocab").write_text("\n".join(WORDS) + "\n")
    files = {"-t": "train", "-v": "vocab", "-wl": "theirs"}
    mitlm.run(
        "estimate-ngram",
        "-s",
        "ModKN",
        "-o",
        order,
        *(word for flag, name in files.items() for word in (flag, tmp_path / name)),
    )
    text = [[WORDS[i] for i in s] for s in test_text]
    ours, theirs = estimate(train_text, WORDS, order), read_arpa(tmp_path / "theirs")
    assert perplexity(ours, text).perplexity == pytest.approx(perplexity(theirs, text).perplexity, rel=1e-5)
    assert perplexity(ours, text).perplexity < NUM_WORDS / 2
    assert_same_tables(ours, theirs)


def test_scorer_agrees_with_table_lookup():
    model = estimate(markov_text(), [*WORDS, "<unk>"], 3)
    probability = Reader(model)
    sentence = ["w1", "w2", "w7", "w7", "w0", "w199"]
    ids = np.array([model.index[word] for word in sentence])
    scores = NgramScorer(model).sentence_scores(
        ids, np.array([len(ids)]), model.index["<s>"], model.index["</s>"]
    )
    tokens = ["<s>", *sentence, "</s>"]
    for i, value in enumerate(scores, 1):
        assert value == pytest.approx(
            math.log10(probability(tuple(tokens[max(0, i - 2) : i]), tokens[i])), abs=1e-9
        )


def test_perplexity_counts_unknown_words_without_scoring_them():
    model = estimate(markov_text(), WORDS, 2)
    probability = Reader(model)
    known, unknown = perplexity(model, [["w1", "w2"], []]), perplexity(model, [["w1", "w2"], [], ["zzz"]])
    assert (unknown.num_words, unknown.num_oov, unknown.num_sentences) == (3, 1, 3)
    end = probability((), "</s>")  # the history after an unknown word is empty
    assert unknown.logprob == pytest.approx(known.logprob + math.log10(end), abs=1e-9)
    assert "1 of them (33.33 %) out of vocabulary" in str(unknown)


def test_words_outside_the_lexicon_train_the_oov_word(tmp_path):
    (tmp_path / "text").write_text("u1 a b strange\nu2 a b\nu3\nu4 odd\n")
    (tmp_path / "lexicon.txt").write_text("<unk> SPN\na AH\na EY\nb B IY\n")
    vocabulary = read_vocabulary(tmp_path / "lexicon.txt")
    assert vocabulary == ["<unk>", "a", "b"]
    model = train([tmp_path / "text"], vocabulary, NgramOptions(order=2))
    probability = Reader(model)
    assert probability(("b",), "<unk>") > probability(("a",), "<unk>")
    assert sorted(model.words) == ["</s>", "<s>", "<unk>", "a", "b"]


def test_oov_words_without_oov_word_are_refused(tmp_path):
    (tmp_path / "text").write_text("u1 a strange\n")
    with pytest.raises(
        UserError,
        match="neither 'strange' nor the OOV word '<unk>' that would replace it is in the vocabulary",
    ):
        read_ids(tmp_path / "text", ["a", "b"], NgramOptions())


@pytest.mark.parametrize(
    "line, word", [("<s> a b </s>", "<s>"), ("a b </s>", "</s>"), ("a #0", "#0"), ("a <eps> zz", "<eps>")]
)
def test_reserved_words_in_text_are_refused(tmp_path, line, word):
    (tmp_path / "text").write_text(f"a b\n{line}\n")
    with pytest.raises(
        UserError,
        match=(
            f"text: '{word}' is reserved and cannot be a word .words.txt uses it for .*; remove it from "
            "the text"
        ),
    ):
        train([tmp_path / "text"], ["a", "b", "<unk>"], NgramOptions(text_ids=False))


def test_reserved_words_in_evaluation_text_are_refused(tmp_path):
    for name, text in (("text", "u1 a b\n"), ("eval", "u1 <s> a b </s>\n"), ("lexicon.txt", "<unk>\na\nb\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="eval: '<s>' is reserved"):
        make_lm([tmp_path / "text"], tmp_path / "lexicon.txt", NgramOptions(), tmp_path, tmp_path / "eval")


def test_lines_with_only_oov_words_are_counted(tmp_path, caplog):
    (tmp_path / "text").write_text("u1 a strange\nu2 odd odder\nu3\nu4 a\nu5 odd\n")
    with caplog.at_level("INFO", "pyasr"):
        read_ids(tmp_path / "text", ["<unk>", "a"], NgramOptions())
    assert (
        "text: 4 of 6 words (66.67 %) are outside the vocabulary and count as <unk>; 2 of 4 lines contain "
        "no other words"
    ) in caplog.text
    with pytest.raises(UserError, match="text: none of its words is in the vocabulary"):
        read_ids(tmp_path / "text", ["<unk>", "A"], NgramOptions())


def test_text_is_mapped_word_by_word(tmp_path):
    (tmp_path / "text").write_text("u1  a\tbé a \n\nu2\n u3 zz bé\r\nu4 a")
    for ids, flat, lengths in (
        (True, [0, 1, 0, 2, 1, 0], [3, 2, 1]),
        (False, [2, 0, 1, 0, 2, 2, 2, 1, 2, 0], [4, 1, 3, 2]),
    ):
        found = read_ids(tmp_path / "text", ["a", "bé", "<unk>"], NgramOptions(text_ids=ids))
        assert (found[0].tolist(), found[1].tolist()) == (flat, lengths)


def test_text_without_ids_is_detected(tmp_path):
    (tmp_path / "text").write_text("the cat saw the dog\na dog\nthe dog saw it\nthe end\n")
    with pytest.raises(
        UserError,
        match=(
            "text: 3 lines begin with 'the', which is also a word, not an utterance id; give --text-ids false"
        ),
    ):
        read_ids(tmp_path / "text", ["the", "dog", "<unk>"], NgramOptions())
    assert len(read_ids(tmp_path / "text", ["the", "dog", "<unk>"], NgramOptions(text_ids=False))[1]) == 4


def test_texts_of_several_corpora_may_repeat_ids(tmp_path):
    (tmp_path / "text").write_text("u1 a b\nu2 b\nu1 b\n")
    assert read_ids(tmp_path / "text", ["a", "b", "<unk>"], NgramOptions())[1].tolist() == [2, 1, 1]


def run(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "utils/train_lm.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )


def test_train_lm_from_the_command_line(tmp_path):
    (tmp_path / "text").write_text(
        "".join(f"u{i} " + " ".join(WORDS[w] for w in s) + "\n" for i, s in enumerate(markov_text(200)))
    )
    (tmp_path / "lexicon.txt").write_text("".join(f"{word} AH\n" for word in WORDS) + "<unk> SPN\n")
    inputs, arpa = (tmp_path / "text", tmp_path / "lexicon.txt"), tmp_path / "lm/bigram/lm.arpa.gz"
    done = run("--order", "2", "--eval-text", tmp_path / "text", *inputs, tmp_path / "lm/bigram")
    assert done.returncode == 0 and "perplexity" in done.stdout
    assert "perplexity" in (tmp_path / "lm/bigram/perplexity.txt").read_text()
    assert read_arpa(arpa).order == 2
    assert "train_lm.py" in read_done(tmp_path / "lm/bigram")["command"]
    assert (
        "is up to date"
        in run("--order", "2", "--eval-text", tmp_path / "text", *inputs, tmp_path / "lm/bigram").stdout
    )
    run("--order", "2", *inputs, tmp_path / "lm/again")
    # outputs that depend on it stay up to date
    assert (tmp_path / "lm/again/lm.arpa.gz").read_bytes() == arpa.read_bytes()
    for arguments, message in (
        (["--min-counts", "1,x"], "--min-counts: '1,x' is not a list"),
        (
            ["--min-counts", "1,1,1"],
            "--min-counts: 3 numbers in '1,1,1', but --order 3 has 2 above 1; omit some",
        ),
        (["--order", "x"], "--order: 'x' is not a whole number"),
    ):
        done = run(*arguments, *inputs, tmp_path / "never")
        assert done.returncode == 1 and message in done.stderr and not (tmp_path / "never").exists()


def test_several_texts_train_same_model_as_their_concatenation(tmp_path):
    texts = ["u1 a b\nu2 b\n", "v1 a a c\n", "w1 zz a\nw2\n"]
    for number, text in enumerate([*texts, "".join(texts)]):
        (tmp_path / f"text{number}").write_text(text)
    (tmp_path / "lexicon.txt").write_text("a\nb\nc\n<unk>\n")
    run(
        "--more-texts",
        f"{tmp_path}/text1,{tmp_path}/text2",
        tmp_path / "text0",
        tmp_path / "lexicon.txt",
        tmp_path / "several",
    )
    run(tmp_path / "text3", tmp_path / "lexicon.txt", tmp_path / "one")
    assert (tmp_path / "several/lm.arpa.gz").read_bytes() == (tmp_path / "one/lm.arpa.gz").read_bytes()
    done = run(
        "--more-texts", tmp_path / "nowhere", tmp_path / "text0", tmp_path / "lexicon.txt", tmp_path / "never"
    )
    assert done.returncode == 1 and "nowhere: no such file or directory" in done.stderr


def test_compute_perplexity_reports_srilm_numbers(tmp_path, capsys):
    """ppl and ppl1 by their definitions. Words outside the vocabulary are counted, not scored."""
    (tmp_path / "lm").mkdir()
    write_arpa(tmp_path / "lm/lm.arpa.gz", estimate(markov_text(300), WORDS, 3))
    write_arpa(tmp_path / "unigrams", estimate(markov_text(300), WORDS, 1))
    (tmp_path / "text").write_text("u1 w1 w2 w7\nu2 zz w3\nu3\n")
    run_here(
        "compute_perplexity.py", tmp_path / "text", tmp_path / "lm", tmp_path / "unigrams", folder="utils"
    )
    lines = capsys.readouterr().out.splitlines()
    for line, name in zip(lines, ("lm/lm.arpa.gz", "unigrams"), strict=True):
        probability = Reader(read_arpa(tmp_path / name))
        cut = probability.order - 1
        sentences = [["<s>", "w1", "w2", "w7", "</s>"], ["w3", "</s>"], ["<s>", "</s>"]]
        scored = [
            (tokens[max(i - cut, 0) : i], tokens[i])
            for tokens in sentences
            for i in range(tokens[0] == "<s>", len(tokens))
        ]
        total = sum(math.log10(probability(tuple(history), word)) for history, word in scored)
        results = (
            f"log10 probability {total:.2f}, ppl {10 ** (-total / 7):.3f}, ppl1 {10 ** (-total / 4):.3f}"
        )
        assert line == f"{tmp_path}/{name}: 3 sentences, 5 words, 1 OOV (20.00 %), {results}"


@pytest.mark.parametrize(
    ("text", "message"),
    [("u1 zz yy\n", "has none of the words of"), ("u1\n", "text: no words in it; give a text of sentences")],
)
def test_texts_without_known_words_have_no_perplexity(tmp_path, text, message):
    write_arpa(tmp_path / "lm", estimate(markov_text(50), WORDS, 2))
    (tmp_path / "text").write_text(text)
    with pytest.raises(UserError, match=message):
        run_here("compute_perplexity.py", tmp_path / "text", tmp_path / "lm", folder="utils")
