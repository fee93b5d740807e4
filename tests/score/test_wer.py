"""Scores of texts: totals, missing utterances, filters, signatures, intervals, tables."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.score.bootstrap import by_group, difference_interval, wer_interval
from pyasr.score.filters import TextFilter
from pyasr.score.score_tables import per_speaker, per_utterance, wer_file
from pyasr.score.wer import score_texts

REFERENCES = {"a-1": "one two three", "a-2": "four", "b-1": "five six"}
HYPOTHESES = {"a-1": "one too three", "b-1": "five uh six six"}
UTT2SPK = {"a-1": "a", "a-2": "a", "b-1": "b"}


def test_missing_hypothesis_is_deleted_and_named():
    score = score_texts(REFERENCES, HYPOTHESES, TextFilter())
    assert score.missing == ["a-2"]
    assert (score.total.sub, score.total.ins, score.total.dele, score.total.num_words) == (1, 2, 1, 6)
    assert wer_file(score) == (
        "%WER 66.67 [ 4 / 6, 2 ins, 1 del, 1 sub ] wer|case:lower|drop:none|align:sclite|v1\n%SER 100.00 [ 3 "
        "/ 3 ]\nScored 3 sentences, 1 not present in hyp.\nmissing: a-2\n"
    )


def test_no_hypotheses_are_100_percent_wer():
    score = score_texts(REFERENCES, {}, TextFilter())
    assert score.total.wer == 100 and score.total.dele == 6 and len(score.missing) == 3
    assert score_texts(REFERENCES, dict.fromkeys(REFERENCES, ""), TextFilter()).total.wer == 100


def test_hypothesis_without_reference_is_refused():
    with pytest.raises(UserError, match="utterance 'c-1' has no reference"):
        score_texts(REFERENCES, {"c-1": "hello"}, TextFilter())


def test_references_without_words_are_refused():
    with pytest.raises(UserError, match="no words to score against"):
        score_texts({"a": "uh"}, {"a": "uh"}, TextFilter(drop="uh"))


def test_filters_and_their_signature():
    assert score_texts({"a": "One"}, {"a": "one"}, TextFilter()).total.errors == 0
    assert score_texts({"a": "One"}, {"a": "one"}, TextFilter(case="keep")).total.errors == 1
    dropping = score_texts(REFERENCES, HYPOTHESES, TextFilter(drop="uh,UM"))
    assert dropping.total.ins == 1 and dropping.signature == "wer|case:lower|drop:uh,um|align:sclite|v1"


def test_totals_are_sums_of_rows():
    score = score_texts(REFERENCES, HYPOTHESES, TextFilter())
    lines = [line.split() for line in per_speaker(score, UTT2SPK).splitlines()]
    numbers = {line[0]: list(map(int, line[1:])) for line in lines[1:] if line[0] != "%"}
    assert numbers["SUM"] == [a + b for a, b in zip(numbers["a"], numbers["b"])] == [3, 6, 4, 1, 2, 1, 4, 3]
    table = per_utterance(REFERENCES, HYPOTHESES, TextFilter())
    csid = [list(map(int, line.split()[2:])) for line in table.splitlines() if "#csid" in line]
    assert np.sum(csid, axis=0).tolist() == [4, 1, 2, 1]


def test_per_utterance_table_lines():
    assert per_utterance({"a": "one two three"}, {"a": "one three four"}, TextFilter()).splitlines() == [
        "a ref  one two three ***",
        "a hyp  one *** three four",
        "a op   C   D   C     I",
        "a #csid 2 0 1 1",
    ]


def test_interval_of_many_utterances_is_normal():
    rng = np.random.default_rng(0)
    words = np.full(2000, 10)
    errors = rng.binomial(10, 0.3, 2000)
    low, high = wer_interval(errors, words)
    centre, half = 100 * errors.sum() / words.sum(), 196 * errors.std() / 10 / np.sqrt(2000)
    assert low == pytest.approx(centre - half, abs=0.1) and high == pytest.approx(centre + half, abs=0.1)
    assert (low, high) == wer_interval(errors, words) != wer_interval(errors, words, seed=1)


def test_paired_interval_is_narrower_than_two_intervals():
    rng = np.random.default_rng(0)
    words = np.full(500, 10)
    first = rng.binomial(10, rng.beta(2, 4, 500))
    second = np.maximum(first - (rng.random(500) < 0.3), 0)
    low, high = difference_interval(first, second, words)
    assert high < 0 and wer_interval(second, words)[1] > wer_interval(first, words)[0]


def test_errors_by_group():
    assert by_group(np.array([1, 2, 3]), ["b", "a", "b"]).tolist() == [2, 4]
