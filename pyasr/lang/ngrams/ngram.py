"""N-gram language models by interpolated modified Kneser-Ney smoothing, vectorised.

S. F. Chen and J. Goodman, "An empirical study of smoothing techniques for language modeling", Harvard
University TR-10-98, 1998.

With a(h w) the *adjusted count* of the n-gram h w (its count at the highest order and if h begins with <s>,
otherwise the number of different words that precede it) and A(h) = sum_w a(h w):

    p(w | h)  =  max(a(h w) - D(a(h w)), 0) / A(h)  +  gamma(h) p(w | h'),      h' = h without its first word
    gamma(h)  =  sum_w min(D(a(h w)), a(h w)) / A(h)
    D(a)      =  D1, D2, D3 for a = 1, 2 and 3 or more
    Dk        =  k - (k + 1) Y n(k+1) / n(k),  Y = n1 / (n1 + 2 n2)

where n(k) is the number of n-grams of the order with adjusted count k. The empty history backs off to the
uniform distribution over the vocabulary (with </s> and the unknown word, without <s>), so every word of the
vocabulary gets a probability, and they sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import Arpa, NgramTable
from pyasr.lang.ngrams.arpa_reader import NO_PROBABILITY

BEGIN, END = "<s>", "</s>"
_FALLBACK = (0.5, 1.0, 1.5)


@dataclass
class _Order:
    """The distinct n-grams of one order, sorted by history, then word.

    prefixes, suffixes  indices into the next lower order: the n-gram without its last and without its first
                        word
    words               last words
    counts              number of occurrences; `adjusted` is the input of the smoothing
    begins              whether the first word is <s>
    """

    prefixes: np.ndarray
    words: np.ndarray
    suffixes: np.ndarray
    counts: np.ndarray
    begins: np.ndarray
    adjusted: np.ndarray


def estimate(
    sentences: list[np.ndarray] | tuple[np.ndarray, np.ndarray],
    words: list[str],
    order: int = 3,
    min_counts: tuple[int, ...] = (),
) -> Arpa:
    """The interpolated modified Kneser-Ney model of `sentences`.

    sentences   arrays of indices into `words`, without sentence ends; or (all of them concatenated, their
                lengths)
    words       the vocabulary; <s> and </s> are added if they are missing
    min_counts  minimum counts of n-grams of order 2, 3, ... (default 1); must not fall with the order

    Raises UserError for text without words and for invalid options.
    """
    flat, lengths = sentences if isinstance(sentences, tuple) else _concatenated(sentences)
    if not len(flat):
        raise UserError("the training text of the language model has no words; check the file")
    least = _least_counts(order, min_counts)
    words = [*words, *(symbol for symbol in (BEGIN, END) if symbol not in words)]
    begin, end = words.index(BEGIN), words.index(END)
    orders = count(*_with_ends(flat, lengths, begin, end), order, begin, len(words))
    return _smooth(orders, words, least)


def _concatenated(sentences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    flat = (
        np.concatenate([np.asarray(s, np.int64) for s in sentences]) if sentences else np.zeros(0, np.int64)
    )
    return flat, np.array([len(s) for s in sentences], np.int64)


def _least_counts(order: int, min_counts: tuple[int, ...]) -> list[int]:
    """Minimum counts of the orders 1, 2, ..."""
    least = [1, *min_counts, *[max(min_counts, default=1)] * order][:order]
    if order < 1 or any(low > high for low, high in zip(least, least[1:])):
        raise UserError(
            f"minimum counts {least} of the n-gram orders must not fall with the order; give for example "
            "--min-counts 1,2"
        )
    return least


def _with_ends(flat: np.ndarray, lengths: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all sentences with <s> and </s>, and the distance of each token from its <s>; int32."""
    firsts = np.cumsum(lengths + 2) - (lengths + 2)
    tokens = np.full(len(flat) + 2 * len(lengths), end, np.int32)
    positions = np.arange(len(tokens), dtype=np.int32)
    positions -= np.repeat(firsts.astype(np.int32), lengths + 2)
    inner = positions > 0
    inner[firsts + lengths + 1] = False
    tokens[firsts] = begin
    tokens[inner] = flat
    return tokens, positions


def count(tokens: np.ndarray, positions: np.ndarray, order: int, begin: int, num_words: int) -> list[_Order]:
    """Counts and adjusted counts of all orders; entry 0 has one row per word of the vocabulary."""
    counts = np.bincount(tokens, minlength=num_words)
    all_words = np.arange(num_words)
    none = np.zeros(num_words, np.int64)
    orders = [_Order(none, all_words, none, counts, all_words == begin, counts)]
    gram = tokens
    for n in range(2, min(order, int(positions.max()) + 1) + 1):  # higher orders are longer than any sentence
        gram = _next_order(orders, gram, tokens, positions, n, num_words)
    for lower, higher in zip(orders, orders[1:]):
        distinct = np.bincount(higher.suffixes, minlength=len(lower.words))
        lower.adjusted = np.where(lower.begins, lower.counts, distinct)
    orders[0].adjusted = np.where(all_words == begin, 0, orders[0].adjusted)
    return orders


def _next_order(
    orders: list[_Order], gram: np.ndarray, tokens: np.ndarray, positions: np.ndarray, n: int, num_words: int
) -> np.ndarray:
    """Append order n, given the index of the (n-1)-gram that ends at each token. Returns the indices of the
    n-grams, -1 if none."""
    where = np.flatnonzero(positions >= n - 1).astype(np.int32)
    keys = gram[where - 1] * np.int64(num_words)
    keys += tokens[where]
    order = np.argsort(keys)  # unstable sorting is faster: any occurrence can represent its n-gram
    keys = keys[order]
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    index = np.cumsum(first, dtype=np.int32)
    index -= 1
    new_gram = np.full(len(tokens), -1, np.int32)
    new_gram[where[order]] = index
    unique = keys[first]
    prefixes, last_words = unique // num_words, unique % num_words
    suffixes = gram[where[order[first]]].astype(np.int64)
    counts = np.bincount(index)
    orders.append(_Order(prefixes, last_words, suffixes, counts, orders[-1].begins[prefixes], counts))
    return new_gram


def discounts(adjusted: np.ndarray, n: int = 0) -> np.ndarray:
    """(D1, D2, D3+) from the counts of counts of order `n`.

    If those are too few for the estimate (a tiny text, or one with a minimum count), all three are the
    discount n1 / (n1 + 2 n2) of plain Kneser-Ney; if that is not possible either, they are 0.5, 1 and 1.5.
    """
    n1, n2, n3, n4 = (int((adjusted == k).sum()) for k in (1, 2, 3, 4))
    if min(n1, n2, n3) > 0:
        y = n1 / (n1 + 2 * n2)
        estimated = np.array([1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
        if (estimated > 0).all() and n4 > 0:
            return estimated
    absolute = np.full(3, n1 / (n1 + 2 * n2)) if min(n1, n2) > 0 else np.array(_FALLBACK)
    log.info(
        f"{n}-grams: too few counts of counts ({n1}, {n2}, {n3}, {n4}) for modified Kneser-Ney; discounts "
        f"{absolute.round(3).tolist()}"
    )
    return absolute


def _smooth(orders: list[_Order], words: list[str], least: list[int]) -> Arpa:
    """Probabilities and back-off weights from the lowest order up."""
    begin = words.index(BEGIN)
    lower = np.full(1, 1.0 / (len(words) - 1))
    num_histories = 1
    tables, kept_before = list[NgramTable](), None
    for n, (grams, minimum) in enumerate(zip(orders, least), 1):
        kept = (grams.counts >= minimum) | (n == 1)
        probability, gamma = _interpolate(grams, kept, num_histories, lower, n)
        if n > 1:
            tables[-1].backoff = np.log10(gamma)[kept_before]
        ids = _ids(orders, n, np.flatnonzero(kept))
        logs = np.log10(probability, where=probability > 0, out=np.full(len(probability), NO_PROBABILITY))[
            kept
        ]
        tables.append(NgramTable(ids, logs, np.zeros(len(ids))))
        lower, num_histories, kept_before = probability, len(grams.words), kept
    tables[0].logprob[begin] = NO_PROBABILITY
    return Arpa(list(words), tables)


def _interpolate(
    grams: _Order, kept: np.ndarray, num_histories: int, lower: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """p(w | h) of every n-gram, and gamma(h) of every history (1 if it has no n-gram). Dropped n-grams add
    all their mass to gamma."""
    discount = np.concatenate(([0.0], discounts(grams.adjusted, n)))[np.minimum(grams.adjusted, 3)]
    taken = np.where(kept, np.minimum(discount, grams.adjusted), grams.adjusted)
    totals = np.bincount(grams.prefixes, grams.adjusted, num_histories)
    freed = np.bincount(grams.prefixes, taken, num_histories)
    gamma = np.divide(freed, totals, where=totals > 0, out=np.ones(num_histories))
    probability = (grams.adjusted - taken) / np.maximum(totals, 1)[grams.prefixes] + gamma[
        grams.prefixes
    ] * lower[grams.suffixes]
    return probability, gamma


def _ids(orders: list[_Order], n: int, rows: np.ndarray) -> np.ndarray:
    """Word indices of these n-grams of order `n`, int32 (num, n)."""
    columns = []
    for grams in reversed(orders[:n]):
        columns.append(grams.words[rows].astype(np.int32))
        rows = grams.prefixes[rows]
    return np.stack(columns[::-1], 1)
