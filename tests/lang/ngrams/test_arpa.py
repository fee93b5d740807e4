import gzip
import subprocess

import kaldi_binaries
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st
from toy_language import random_ngrams, sentence_log10, write_arpa_text

from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, perplexity, read_arpa, repeated_rows, write_arpa

GOOD = """something before the header is allowed

\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99 <s> -0.30103
-0.69897\t</s>
-0.5\ta\t-0.25
-1.5e-1 b

\\2-grams:
-0.2 <s> a
-0.1\ta b
0 b </s>

\\end\\
"""


def write(tmp_path, text, name="lm.arpa"):
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return tmp_path / name


@pytest.mark.parametrize("name", ["lm.arpa", "lm.arpa.gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tabs_blanks_exponents_and_missing_weights_are_read(tmp_path, name, newline):
    model = read_arpa(write(tmp_path, GOOD.replace("\n", newline), name))
    assert model.words == ["<s>", "</s>", "a", "b"] and model.order == 2
    assert model.tables[0].logprob.tolist() == [-99, -0.69897, -0.5, -0.15]
    assert model.tables[0].backoff.tolist() == [-0.30103, 0, -0.25, 0]
    assert model.tables[1].ids.tolist() == [[0, 2], [2, 3], [3, 1]] and model.tables[1].ids.dtype == np.int32


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "\\date\\", r":1: no \\data\\ line"),
        ("ngram 2=3", "ngram 2=three", r":5: expected 'ngram 2=COUNT' in the header, not 'ngram 2=three'"),
        ("ngram 1=4", "ngram 3=4", r":4: expected 'ngram 1=COUNT'"),
        ("ngram 1=4\nngram 2=3\n", "", r":3: no 'ngram 1=COUNT' after"),
        ("ngram 2=3", "ngram 2=4", r":13: 3 2-grams, but the header promises 4"),
        ("ngram 2=3", "ngram 2=2", r":13: 3 2-grams, but the header promises 2"),
        ("ngram 2=3", "ngram 2=3\nngram 3=1", r":19: expected \\3-grams: here"),
        ("\\2-grams:", "\\bigrams:", r":13: expected \\2-grams: here"),
        ("\\end\\\n", "", r"no \\end\\ after the 2-grams"),
        ("-0.1\ta b", "-0.1\ta c", r":15: a word without a unigram in the 2-gram '-0.1\\ta c'"),
        ("-0.1\ta b", "-0.x\ta b", r":15: the log10 probability or back-off weight is not a number"),
        ("-0.1\ta b", "-0.1\ta", r":15: the wrong number of columns in the 2-gram"),
        ("-0.1\ta b", "-0.1\ta b -0.2", r":15: the wrong number of columns"),
        ("-0.69897\t</s>", "-0.69897", r":9: a unigram needs a probability and a word"),
        ("-1.5e-1 b", "-1.5e-1 a", r":11: the unigram 'a' occurs twice, first on line 10; remove one"),
        ("-0.1\ta b", "-0.2\t<s> a", r":15: the 2-gram '<s> a' occurs twice, first on line 14; remove one"),
        (
            "-0.1\ta b",
            "\n-0.1\tb </s>",
            r":17: the 2-gram 'b </s>' occurs twice, first on line 16; remove one",
        ),
        ("<s>", "z", ": <s> has no unigram, so sentences have no probability; estimate the model with"),
        ("</s>", "z", ": </s> has no unigram, so"),
        ("-0.5\ta", "0.5\ta", r"the log10 probability 0.5, greater than 0"),
        ("-0.5\ta", "inf\ta", r":10: the 1-gram number 3 has the log10 probability inf, greater than 0"),
        ("-0.25", "inf", r":10: the 1-gram number 3 has the log10 back-off weight inf, greater than 99"),
        ("-0.25", "1e39", r"the 1-gram number 3 has the log10 back-off weight 1e\+39, greater than 99"),
    ],
)
def test_invalid_file_is_reported_with_line(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(UserError, match="lm.arpa" + ".*" + message):
        read_arpa(write(tmp_path, GOOD.replace(old, new)))


@given(
    numpy_st.arrays(np.int32, st.tuples(st.integers(0, 9), st.integers(1, 4)), elements=st.integers(0, 3)),
    st.sampled_from(["as it is", "sorted", "from the last"]),
)
def test_repeated_rows_are_found_in_any_order(ids, order):
    """Compared with a dictionary."""
    if order != "as it is":
        ids = np.array(
            sorted(ids.tolist(), key=lambda row: row if order == "sorted" else row[::-1]), np.int32
        ).reshape(ids.shape)
    seen, expected = {}, None
    for row, ngram in enumerate(map(tuple, ids.tolist())):
        if (first := seen.setdefault(ngram, row)) != row:
            expected = first, row
            break
    assert repeated_rows(ids) == expected


def test_sorted_ngrams_are_not_hashed(monkeypatch):
    monkeypatch.setattr("pyasr.lang.ngrams.arpa.kernels.row_hashes", None)
    ids = np.unique(np.random.default_rng(0).integers(0, 50, (400, 3)), axis=0).astype(np.int32)
    assert repeated_rows(ids) is None and repeated_rows(ids[np.lexsort(ids.T)]) is None
    with pytest.raises(TypeError):
        repeated_rows(ids[::-1])


@pytest.mark.parametrize("written", ["-inf", "-INF", "-1e39", "-1e999", "-99"])
def test_minus_99_in_any_notation_means_zero_probability(tmp_path, written):
    model = read_arpa(
        write(
            tmp_path,
            GOOD.replace("-0.5\ta\t-0.25", f"{written}\ta\t{written}").replace(
                "-0.1\ta b", f"{written}\ta b"
            ),
        )
    )
    assert model.tables[0].logprob[2] == model.tables[0].backoff[2] == model.tables[1].logprob[1] == -99
    assert perplexity(model, [["a", "b"]]).logprob == pytest.approx(-99.2)


@pytest.mark.parametrize("cut", [10, 40, 70, 95, 120, 150])
def test_truncated_file_is_refused(tmp_path, cut):
    with pytest.raises(UserError):
        read_arpa(write(tmp_path, GOOD[: len(GOOD) - cut]))
    data = gzip.compress(GOOD.encode())
    (tmp_path / "cut.gz").write_bytes(data[:-cut])
    with pytest.raises(UserError, match="damaged or truncated gzip file"):
        read_arpa(tmp_path / "cut.gz")


def test_missing_and_empty_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="nothing.arpa"):
        read_arpa(tmp_path / "nothing.arpa")
    with pytest.raises(UserError, match="no .data. line"):
        read_arpa(write(tmp_path, ""))


def test_random_model_survives_round_trip(tmp_path):
    words = ["<s>", "</s>", *(f"wörd{i}" for i in range(48))]
    rng = np.random.default_rng(0)
    tables = []
    for n in (1, 2, 3):
        ids = (
            np.unique(rng.integers(0, 50, (400, n)), axis=0).astype(np.int32)
            if n > 1
            else np.arange(50, dtype=np.int32)[:, None]
        )
        tables.append(NgramTable(ids, -rng.uniform(0, 8, len(ids)), rng.uniform(-2, 1, len(ids)) * (n < 3)))
    tables[0].logprob[:3] = (-99, 0, -1e-7)
    for name in ("a.arpa", "a.arpa.gz"):
        write_arpa(tmp_path / name, Arpa(words, tables))
        back = read_arpa(tmp_path / name)
        assert back.words == words
        for ours, theirs in zip(tables, back.tables):
            assert np.array_equal(ours.ids, theirs.ids)
            assert (
                abs(ours.logprob - theirs.logprob).max() <= 5.1e-7
                and abs(ours.backoff - theirs.backoff).max() <= 5.1e-7
            )
    assert gzip.decompress((tmp_path / "a.arpa.gz").read_bytes()) == (tmp_path / "a.arpa").read_bytes()


def test_numbers_are_read_exactly(tmp_path):
    texts = [
        "-1.234567",
        "-0.30102999566398",
        "-12.5E-3",
        "-.5",
        "-7",
        "-3.",
        "-123456789012345678e-17",
        "-2.2250738585072014e-8",
    ]
    unigrams = "".join(f"{text} {word}\n" for text, word in zip(texts, ["<s>", "</s>", *"abcdef"]))
    model = read_arpa(write(tmp_path, f"\\data\\\nngram 1={len(texts)}\n\n\\1-grams:\n{unigrams}\n\\end\\\n"))
    assert model.tables[0].logprob == pytest.approx([float(text) for text in texts], rel=1e-14)


def test_scores_equal_backoff_recursion(tmp_path):
    """Models with gaps: unlisted suffixes, histories without continuation."""
    words = [f"w{i}" for i in range(10)]
    orders = random_ngrams(2, words, (0, 50, 120))
    write_arpa_text(tmp_path / "lm.arpa", orders)
    model = read_arpa(tmp_path / "lm.arpa")
    rng = np.random.default_rng(0)
    for _ in range(30):
        sentence = [words[i] for i in rng.integers(0, 10, rng.integers(0, 7))]
        assert perplexity(model, [sentence]).logprob == pytest.approx(
            sentence_log10(orders, sentence), abs=1e-4
        )


@kaldi_binaries.needed
def test_kaldi_reads_our_arpa_files(tmp_path):
    from pyasr.lang.ngrams.ngram import estimate

    words = ["<unk>", "a", "b", "c"]
    model = estimate([np.array(s) for s in ([1, 2, 3], [1, 2], [3, 3, 1], [2])], words, 3)
    write_arpa(tmp_path / "lm.arpa", model)
    (tmp_path / "words.txt").write_text("<eps> 0\n<unk> 1\na 2\nb 3\nc 4\n#0 5\n<s> 6\n</s> 7\n")
    done = subprocess.run(
        [
            kaldi_binaries.DIRECTORY / "arpa2fst",
            "--disambig-symbol=#0",
            f"--read-symbol-table={tmp_path}/words.txt",
            tmp_path / "lm.arpa",
            tmp_path / "G.fst",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr and (tmp_path / "G.fst").stat().st_size > 100
