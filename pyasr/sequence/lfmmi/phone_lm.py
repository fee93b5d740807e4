r"""The phone language model of LF-MMI's denominator: maximum likelihood, without smoothing or back-off arcs,
for expansion into an HMM.

Reference: D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI",
Interspeech 2016, section 2.1; equivalent to Kaldi's chain-est-phone-lm.

A *history* is the sequence of phones before a phone, at most order - 1 of them, fewer at the beginning of a
sequence; the end of the sequence counts as a phone. With c(h, p) the counts of history h,

    p(p | h) = c(h, p) / c(h),      c(h) = sum_p c(h, p),      l(h) = sum_p c(h, p) ln p(p | h)

Histories of at least `no_prune_order` phones are pruned one after the other: h adds its counts to those of
h', which is h without the first phone, and the log-likelihood of the data decreases by

    l(h) + l(h') - l(h + h')  >= 0.

The history with the smallest loss is pruned first (a loss is updated when its history's turn comes), until
`num_extra_lm_states` of these long histories are left. Then an arc with p leads from h to the longest suffix
of h p that is a state. A phone that never followed a history cannot follow it in the model.

A history is pruned only after all histories that extend it by one phone at the beginning or at the end. Those
with an additional first phone add their counts to it. Those with an additional last phone are reached from
it: once h has been pruned, p leads from h' to the longest suffix of h' p, and the state h p, which has the
counts of what followed h p, would be bypassed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst

END = 0
_BLOCK = 20_000  # sequences whose n-grams are in memory at a time
History = tuple[int, ...]


@dataclass(frozen=True)
class PhoneLmOptions:
    """Options of the denominator's phone language model."""

    heading = "objective"

    ngram_order: int = option(4, "order of the phone language model", minimum=1, rare=True)
    no_prune_order: int = option(3, "maximum order of n-grams that are not pruned", minimum=1, rare=True)
    num_extra_lm_states: int = option(
        2000, "number of histories of longer n-grams to keep, selected by likelihood", minimum=0, rare=True
    )


def estimate_phone_lm(sequences: Iterable[np.ndarray], options: PhoneLmOptions = PhoneLmOptions()) -> Fst:
    """Estimate the model of `sequences` (phone ids from 1, each int (num_phones)), an acceptor; state 0, the
    empty history, is the start.

    Raises UserError if there are no phones, or for a phone below 1.
    """
    counts = count_histories(sequences, options.ngram_order)
    num_long = sum(len(history) >= options.no_prune_order for history in counts)
    prune_histories(counts, options.no_prune_order, options.num_extra_lm_states)
    fst = _acceptor(counts)
    log.info(
        f"phone LM: {fst.num_states} states (of {num_long} long histories "
        f"{min(num_long, options.num_extra_lm_states)} kept), {fst.num_arcs} arcs, perplexity "
        f"{perplexity(counts):.2f}"
    )
    return fst


def count_histories(sequences: Iterable[np.ndarray], order: int) -> dict[History, Counter]:
    """c(h, p) as {h: {p: count}}, END for the end of a sequence; always includes the empty history."""
    windows = (_windows(np.asarray(sequence, np.int64), order) for sequence in sequences if len(sequence))
    grams, numbers = np.zeros((0, order), np.int64), np.zeros(0, np.int64)
    while some := list(islice(windows, _BLOCK)):
        rows = np.concatenate([grams, *some])
        weights = np.concatenate([numbers, np.ones(sum(map(len, some)), np.int64)])
        grams, places = np.unique(rows, axis=0, return_inverse=True)
        numbers = np.bincount(places.ravel(), weights).astype(np.int64)
    if not len(grams):
        raise UserError("there are no phones to estimate a phone language model from; check the alignments")
    counts: dict[History, Counter] = {(): Counter()}
    for (*history, phone), number in zip(grams.tolist(), numbers.tolist()):
        counts.setdefault(tuple(p for p in history if p), Counter())[phone] += number
    return counts


def _windows(phones: np.ndarray, order: int) -> np.ndarray:
    """Each phone and the end with the phones before it: (num_phones + 1, order), padded by 0 at the begin."""
    if (phones < 1).any():
        raise UserError(f"phone {phones.min()} in the sequences for the phone language model; ids start at 1")
    padded = np.concatenate([np.zeros(order - 1, np.int64), phones, [END]])
    return np.lib.stride_tricks.sliding_window_view(padded, order)


def perplexity(counts: dict[History, Counter]) -> float:
    """exp(-sum_h l(h) / sum_h c(h)), the perplexity of the counted data, including the ends of sequences."""
    return float(
        np.exp(-sum(map(log_like, counts.values())) / sum(sum(of.values()) for of in counts.values()))
    )


def log_like(counts: Counter) -> float:
    """l of one history: the log-likelihood of its counts under the model estimated from them."""
    values = np.fromiter(counts.values(), np.float64, len(counts))
    return float(values @ np.log(values) - values.sum() * np.log(max(values.sum(), 1.0)))


def prune_histories(counts: dict[History, Counter], no_prune_order: int, num_kept: int) -> None:
    """Prune long histories in `counts` until `num_kept` are left, each after the histories that extend it by
    one phone."""
    long = {history for history in counts if len(history) >= no_prune_order}
    num_left = len(long)
    suffixes = {history[first:] for history in long for first in range(len(history) - no_prune_order + 1)}
    num_longer = Counter(shorter for history in suffixes for shorter in _shorter(history))
    heap = [(_loss(counts, history), history) for history in suffixes if not num_longer[history]]
    heapq.heapify(heap)
    while num_left > num_kept:
        loss, history = heapq.heappop(heap)
        now = _loss(counts, history)
        if heap and now > max(loss, heap[0][0]):
            heapq.heappush(heap, (now, history))
            continue
        heir, moved = history[1:], counts.pop(history)
        num_left += (len(heir) >= no_prune_order and heir not in counts) - 1
        counts.setdefault(heir, Counter()).update(moved)
        for shorter in _shorter(history):
            num_longer[shorter] -= 1
            if len(shorter) >= no_prune_order and not num_longer[shorter]:
                heapq.heappush(heap, (_loss(counts, shorter), shorter))


def _shorter(history: History) -> tuple[History, History]:
    """The history without the first phone, and without the last."""
    return history[1:], history[:-1]


def _loss(counts: dict[History, Counter], history: History) -> float:
    """l(h) + l(h') - l(h + h')."""
    own, shorter = counts[history], counts.get(history[1:], Counter())
    return log_like(own) + log_like(shorter) - log_like(own + shorter)


def _acceptor(counts: dict[History, Counter]) -> Fst:
    states = {
        history: number
        for number, history in enumerate(sorted(counts, key=lambda history: (len(history), history)))
    }
    rows, finals = [], {}
    for history, state in states.items():
        total = sum(counts[history].values())
        for phone, number in sorted(counts[history].items()):
            cost = float(np.log(total / number))
            if phone == END:
                finals[state] = cost
            else:
                rows.append((state, phone, cost, states[_longest_suffix((*history, phone), states)]))
    sources, phones, costs, targets = zip(*rows)
    return Fst.from_arcs(len(states), 0, sources, phones, phones, costs, targets, finals)


def _longest_suffix(history: History, states: dict[History, int]) -> History:
    while history not in states:
        history = history[1:]
    return history
