"""Word alignment against sclite, kaldialign and a plain recursion."""

import functools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sclite import SCLITE, sclite_counts

from pyasr.score.word_alignment import Counts, align, count, count_many

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


def random_pairs(num: int, seed: int = 0):
    """Short and long utterances over small and large vocabularies, with many alignments of equal cost."""
    rng = random.Random(seed)
    for _ in range(num):
        vocabulary = [f"w{i}" for i in range(rng.choice([2, 3, 4, 8, 50]))]
        longest = rng.choice([4, 12, 40])
        yield tuple([rng.choice(vocabulary) for _ in range(rng.randint(least, longest))] for least in (1, 0))


def spoken_pairs(num: int, seed: int = 1):
    """References with words deleted, repeated and replaced, as by a recogniser."""
    rng = random.Random(seed)
    vocabulary = "the of a to and you it is that in i me my what have do we're".split()
    for _ in range(num):
        reference, hypothesis = [rng.choice(vocabulary) for _ in range(rng.randint(1, 15))], []
        for word in reference:
            fate = rng.random()
            other = rng.choice(vocabulary)
            hypothesis += (
                [word] if fate < 0.5 else [other] if fate < 0.75 else [word, other] if fate < 0.85 else []
            )
        yield reference, hypothesis


@pytest.mark.skipif(SCLITE is None, reason="sclite is not installed (apt-get install sctk)")
def test_counts_equal_sclite(tmp_path):
    pairs = [*random_pairs(6000), *spoken_pairs(3000)]
    ours = count_many(*zip(*pairs))
    assert [tuple(row) for row in ours.tolist()] == sclite_counts(pairs, tmp_path)


def test_errors_are_at_least_levenshtein_distance():
    """The weights of sclite never give fewer errors than the minimum, and on most utterances exactly that."""
    kaldialign = pytest.importorskip("kaldialign")
    pairs = [*random_pairs(500), *spoken_pairs(500)]
    least = [kaldialign.edit_distance(reference, hypothesis)["total"] for reference, hypothesis in pairs]
    ours = [count(*pair).errors for pair in pairs]
    assert all(a >= b for a, b in zip(ours, least)) and sum(a == b for a, b in zip(ours, least)) > 0.9 * len(
        pairs
    )


@given(reference=WORDS, hypothesis=WORDS)
def test_alignment_cost_is_minimal(reference, hypothesis):
    @functools.cache
    def cost(i, j):
        ways = [cost(i - 1, j - 1) + 4 * (reference[i - 1] != hypothesis[j - 1])] if i and j else []
        ways += ([cost(i - 1, j) + 3] if i else []) + ([cost(i, j - 1) + 3] if j else [])
        return min(ways, default=0)

    counts = count(reference, hypothesis)
    assert 4 * counts.sub + 3 * (counts.ins + counts.dele) == cost(len(reference), len(hypothesis))


@given(reference=WORDS, hypothesis=WORDS)
def test_pairs_and_counts_agree(reference, hypothesis):
    pairs = align(reference, hypothesis)
    assert [r for r, _ in pairs if r is not None] == reference and [
        h for _, h in pairs if h is not None
    ] == hypothesis
    kinds = [
        ("ins" if r is None else "dele" if h is None else "correct" if r == h else "sub") for r, h in pairs
    ]
    counts = count(reference, hypothesis)
    assert counts == Counts(**{kind: kinds.count(kind) for kind in ("correct", "sub", "ins", "dele")})
    assert count_many([reference], [hypothesis]).tolist() == [
        [counts.correct, counts.sub, counts.ins, counts.dele]
    ]


def test_empty_reference_or_hypothesis():
    assert count([], []) == Counts() and count([], []).wer == 0
    assert count(["a", "b"], []) == Counts(dele=2) and count(["a"], []).wer == 100
    assert count([], ["a"]).wer == float("inf")
