r"""Pruning of back-off models.

A. Stolcke, "Entropy-based pruning of backoff language models", Proc. DARPA Broadcast News Transcription and
Understanding Workshop, 1998 (arXiv cs/0006025). Removing the n-gram h w raises the model's perplexity by the
factor exp(D) with

    D  =  -P(h) { p(w | h) [ln p(w | h') + ln b'(h) - ln p(w | h)]
                  +  [ln b'(h) - ln b(h)] (1 - sum_v p(v | h)) },

    b'(h)  =  (1 - sum_v p(v | h) + p(w | h)) / (1 - sum_v p(v | h') + p(w | h')),

where v runs over all listed words after h including w, and P(h) is the probability of the history,
p(w1) p(w2 | w1) ... The probability of <s> is p(</s>), because a text has as many of both. The n-gram is
removed if exp(D) - 1 is below the threshold and no longer n-gram begins with it. All n-grams of an order are
compared with the original model; the highest order is pruned first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.lang.ngrams import trie_kernels as kernels
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.ngrams.ngram import BEGIN, END
from pyasr.lang.ngrams.train_lm import arpa_file, write_lm
from pyasr.lang.ngrams.trie import Trie, trie_of

_LN10 = np.log(10.0)


def prune_by_entropy(
    trie: Trie, threshold: float, min_order: int = 2, history_model: Trie | None = None
) -> None:
    """Remove n-grams of order `min_order` and above whose removal raises the perplexity by less than the
    fraction `threshold`.

    history_model  model for P(h) instead of the model itself; it has all words of the model
    """
    trie.normalize()
    histories = history_log_probabilities(trie, history_model)
    for n in range(trie.order, min_order - 1, -1):
        kept = np.ones(trie.bounds[n + 1] - trie.bounds[n], bool)
        kept[perplexity_changes(trie, n, histories) < threshold] = False
        if n < trie.order:
            longer = trie.level(n + 1)
            kept[trie.nodes.parents[longer][~np.isnan(trie.nodes.logprob[longer])] - trie.bounds[n]] = True
        trie.nodes.logprob[trie.level(n)][~kept] = np.nan
    trie.normalize()


def perplexity_changes(trie: Trie, n: int, histories: np.ndarray) -> np.ndarray:
    """exp(D) - 1 of each n-gram of order `n` of a normalised model, float64.

    histories  log10 P(h) of all nodes, float64
    """
    shares, rows, lower = trie.shares(n), trie.level(n), trie.level(n - 1)
    left, room = (np.maximum(share, 0.0)[shares.histories] for share in (shares.left, shares.room))
    logprob, probability = trie.nodes.logprob[rows], shares.probability
    weight = trie.nodes.backoff[lower][shares.histories]
    new_weight = np.log10((left + probability) / (room + 10.0**shares.estimate))
    change = probability * (shares.estimate + new_weight - logprob) + left * (new_weight - weight)
    return np.expm1(-_LN10 * 10.0 ** histories[lower][shares.histories] * change)


def history_log_probabilities(trie: Trie, model: Trie | None = None) -> np.ndarray:
    """log10 P(h) of all nodes, float64, under the trie itself or under another model with its words."""
    scores = trie.nodes.logprob.copy()
    if model is not None:
        numbers = {word: number for number, word in enumerate(model.words)}
        scores = kernels.follow(trie.nodes, model.nodes, np.array([numbers[word] for word in trie.words]))
    scores[0] = 0.0
    scores[1 + trie.words.index(BEGIN)] = scores[1 + trie.words.index(END)]
    for n in range(2, trie.order):
        rows = trie.level(n)
        scores[rows] += scores[trie.nodes.parents[rows]]
    return scores


def prune_low_probabilities(trie: Trie, min_order: int = 2) -> None:
    """Remove n-grams of order `min_order` and above that are less probable than their back-off estimates.

    As SRILM's `-prune-lowprobs`: from the lowest order up, with new back-off weights after each order, until
    no such n-gram is left. N-grams that are prefixes of longer ones get their back-off estimates instead.
    """
    trie.normalize()
    removed = True
    while removed:
        removed = any(_remove_low(trie, n) for n in range(min_order, trie.order + 1))
    trie.restore_histories()


def _remove_low(trie: Trie, n: int) -> bool:
    """One round of `prune_low_probabilities` on one order. Returns whether n-grams were removed."""
    rows = trie.level(n)
    low = trie.backed_off(n) > trie.nodes.logprob[rows]
    if low.any():
        trie.nodes.logprob[rows][low] = np.nan
        trie.normalize(n)
    return bool(low.any())


@dataclass(frozen=True)
class PruneOptions:
    """Which n-grams of a model are removed."""

    threshold: float = option(
        0.0,
        "remove n-grams whose removal raises the perplexity by a smaller fraction, such as 1e-7; "
        "0: no pruning",
        minimum=0,
    )
    lowprobs: bool = option(
        False,
        "remove n-grams that are less probable than their back-off estimates, after pruning by --threshold",
    )
    min_order: int = option(2, "order of the shortest n-grams to remove", minimum=2)
    history_lm: Path | None = option(
        None, "model for the probabilities of histories; none: LM itself", only=if_set("threshold")
    )


def prune_lm(source: Path, options: PruneOptions, out: Path) -> None:
    """Write the pruned model of an ARPA file to the directory `out`."""
    trie = trie_of(read_arpa(source), source)
    if options.min_order > trie.order:
        raise UserError(
            f"{source}: its order is {trie.order}, below --min-order {options.min_order}; nothing would be "
            "pruned"
        )
    before = trie.counts()
    if options.threshold:
        prune_by_entropy(trie, options.threshold, options.min_order, _history_model(options.history_lm, trie))
    if options.lowprobs:
        prune_low_probabilities(trie, options.min_order)
    log.info("before: " + ", ".join(f"{number} {n}-grams" for n, number in enumerate(before, 1)))
    write_lm(trie.arpa(), out)


def _history_model(source: Path | None, trie: Trie) -> Trie | None:
    """The model of histories. Raises UserError if it lacks words of the model to prune."""
    if source is None:
        return None
    path = arpa_file(source)
    model = trie_of(read_arpa(path), path)
    if lacking := sorted(set(trie.words) - set(model.words)):
        fault = f"{len(lacking)} words of the model to prune are not in it, such as '{lacking[0]}'"
        raise UserError(f"{path}: {fault}; estimate it with the same vocabulary")
    return model


def check_prune_options(options: PruneOptions) -> None:
    """Raise UserError if no pruning is requested."""
    if not options.threshold and not options.lowprobs:
        raise UserError("no pruning is requested; give --threshold, such as 1e-7, or --lowprobs")
