"""Back-off models evaluated by the definition, with dictionaries and recursion, and small example models."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pyasr.lang.ngrams.arpa import Arpa, NgramTable
from pyasr.lang.ngrams.ngram import estimate


class Reader:
    """p(word | history) as any reader of ARPA tables computes it. `removed` n-grams keep only their back-off
    weights."""

    def __init__(self, model, removed=frozenset()):
        self.index, self.order, self.removed = model.index, model.order, removed
        self.tables = [
            {
                tuple(ids): (10**p, 10**b)
                for ids, p, b in zip(t.ids.tolist(), t.logprob.tolist(), t.backoff.tolist())
            }
            for t in model.tables
        ]

    def __call__(self, history, word):
        return self._backed_off(tuple(self.index[w] for w in history), self.index[word])

    def _backed_off(self, history, word):
        gram = (*history, word)
        if gram in self.tables[len(history)] and gram not in self.removed:
            return self.tables[len(history)][gram][0]
        weight = self.tables[len(history) - 1].get(history, (0, 1))[1]
        return weight * self._backed_off(history[1:], word)


def events(model: Arpa) -> list[str]:
    """Words that can follow a history."""
    return [word for word in model.words if word != "<s>"]


def ngrams(model: Arpa) -> list[tuple[str, ...]]:
    """All n-grams of a model whose last word is an event, as words."""
    return [
        tuple(model.words[i] for i in ids)
        for table in model.tables
        for ids in table.ids.tolist()
        if model.words[ids[-1]] != "<s>"
    ]


def rows(model: Arpa) -> dict[tuple[str, ...], tuple[float, float]]:
    """Words -> (log10 probability, back-off weight), except the unused probability of <s>."""
    pairs = (
        (ids, pair)
        for table in model.tables
        for ids, pair in zip(table.ids.tolist(), zip(table.logprob, table.backoff))
    )
    found = {tuple(model.words[i] for i in ids): pair for ids, pair in pairs}
    return {gram: pair for gram, pair in found.items() if gram != ("<s>",)}


def assert_same_tables(ours: Arpa, theirs: Arpa) -> None:
    """The same n-grams with the same probabilities and weights, up to the sixth decimal."""
    own, other = rows(ours), rows(theirs)
    assert own.keys() == other.keys()
    assert all(own[gram] == pytest.approx(other[gram], abs=2e-6) for gram in own)


def histories(model: Arpa) -> list[tuple[str, ...]]:
    """All histories of a model, listed or not, up to its order less one word. <s> is only the first word, and
    </s> never occurs."""
    words = [word for word in model.words if word not in ("<s>", "</s>")]
    first = ["<s>", *words]
    return [()] + [
        (one, *rest)
        for n in range(model.order - 1)
        for one in first
        for rest in itertools.product(words, repeat=n)
    ]


def worst_sum(model: Arpa) -> float:
    """Largest deviation from one of the summed probabilities of all words after a history."""
    probability, follow = Reader(model), events(model)
    return max(
        abs(math.fsum(probability(history, word) for word in follow) - 1) for history in histories(model)
    )


def small_model(
    seed: int, words: list[str], order: int, num_sentences: int = 40, min_counts: tuple[int, ...] = ()
) -> Arpa:
    """A model of a random text in which each word has preferred successors."""
    rng = np.random.default_rng(seed)
    follow = rng.dirichlet(np.full(len(words), 0.4), len(words))
    sentences = []
    for _ in range(num_sentences):
        sentence = [int(rng.integers(len(words)))]
        while rng.random() < 0.75:
            sentence.append(int(rng.choice(len(words), p=follow[sentence[-1]])))
        sentences.append(np.array(sentence))
    return estimate(sentences, list(words), order, min_counts)


def renormalized(model: Arpa, removed=frozenset()) -> Arpa:
    """A copy whose back-off weights are computed by the definition, starting with the shortest histories.
    `removed` n-grams count as not listed."""
    copy = Arpa(
        list(model.words),
        [NgramTable(table.ids.copy(), table.logprob.copy(), np.zeros(len(table))) for table in model.tables],
    )
    followers: dict[tuple, list[tuple]] = {}
    for table in model.tables[1:]:
        for ids in set(map(tuple, table.ids.tolist())) - removed:
            followers.setdefault(ids[:-1], []).append(ids)
    for table in copy.tables[:-1]:
        probability = Reader(copy, removed)
        for row, ids in enumerate(map(tuple, table.ids.tolist())):
            listed = followers.get(ids, [])
            left = 1 - math.fsum(probability._backed_off(gram[:-1], gram[-1]) for gram in listed)
            room = 1 - math.fsum(probability._backed_off(gram[1:-1], gram[-1]) for gram in listed)
            table.backoff[row] = math.log10(left / room) if room > 1e-9 else 0.0  # else all words are listed
    return copy
