r"""A static mixture of back-off models: one back-off model with the n-grams of all of them.

    p(w | h) = sum_i lambda_i p_i(w | h)

for every n-gram h w that at least one model lists; the other models back off. The back-off weights of the
mixture follow from these probabilities, so that the words after each history sum to one. The mixture differs
from the weighted mean of the models only for n-grams that no model lists. SRILM's `ngram -mix-lm` without
`-bayes` computes the same model.

A. Stolcke, "SRILM - an extensible language modeling toolkit", Proc. ICSLP, 2002.
"""

from __future__ import annotations

import numpy as np

from pyasr.lang.ngrams import trie_kernels as kernels
from pyasr.lang.ngrams.arpa_reader import NO_PROBABILITY
from pyasr.lang.ngrams.ngram import BEGIN
from pyasr.lang.ngrams.trie import Trie


def mixture(
    models: list[Trie], weights: np.ndarray, unknown: str = "<unk>", share_unknown: bool = False
) -> Trie:
    """The static mixture of models of any orders; weights float64 (num_models), which sum to one.

    A word that a model lacks has probability 0 under that model. With `share_unknown`, the words that the
    model lacks and the word `unknown` have equal shares of the model's probability of `unknown`. In
    histories, such a word counts as `unknown`; if the model lacks that, too, the history begins after it.
    """
    mixed = _union(models)
    probability = np.zeros(len(mixed.nodes.logprob))
    for model, weight in zip(models, weights):
        probability += weight * 10.0 ** _scores(mixed, model, unknown, share_unknown)
    unigrams = mixed.level(1)
    events = np.array([word != BEGIN for word in mixed.words])
    probability[unigrams] /= probability[unigrams][events].sum()
    with np.errstate(divide="ignore"):
        mixed.nodes.logprob[:] = np.maximum(np.log10(probability), NO_PROBABILITY)
    mixed.nodes.logprob[unigrams][~events] = NO_PROBABILITY
    mixed.normalize()
    return mixed


def _union(models: list[Trie]) -> Trie:
    """The n-grams of all models. The words are those of the first model, then the further words of the
    second, and so on."""
    words = list(dict.fromkeys(word for model in models for word in model.words))
    index = {word: number for number, word in enumerate(words)}
    word_maps = [np.array([index[word] for word in model.words], np.int64) for model in models]
    node_maps = [np.zeros(len(model.nodes.last), np.int64) for model in models]
    levels, bound = [], 1
    for n in range(1, max(model.order for model in models) + 1):
        having = [one for one in zip(models, word_maps, node_maps) if one[0].order >= n]
        keys = [
            nodes[model.nodes.parents[model.level(n)]] * len(words) + mapped[model.nodes.last[model.level(n)]]
            for model, mapped, nodes in having
        ]
        every = np.unique(np.concatenate(keys))
        for (model, _, nodes), own in zip(having, keys):
            nodes[model.level(n)] = bound + np.searchsorted(every, own)
        levels.append((every // len(words), every % len(words)))
        bound += len(every)
    return Trie.of_levels(words, levels)


def _scores(mixed: Trie, model: Trie, unknown: str, share_unknown: bool) -> np.ndarray:
    """log10 p(w | h) of all nodes of the mixture under one of its models; -inf for 0."""
    index = {word: number for number, word in enumerate(model.words)}
    numbers = np.array([index.get(word, -1) for word in mixed.words], np.int64)
    lacking, substitute = numbers < 0, index.get(unknown, -1)
    scores = kernels.follow(mixed.nodes, model.nodes, np.where(lacking, substitute, numbers))
    change = np.where(lacking, -np.inf, 0.0)
    if share_unknown and substitute >= 0:
        change[lacking | (numbers == substitute)] = share_of_unknown(int(lacking.sum()))
    scores[1:] += change[mixed.nodes.last[1:]]
    return scores


def share_of_unknown(num_lacking: int) -> float:
    """log10 of the share of p(unknown) of each word that a model lacks, and of the unknown word itself."""
    return -np.log10(num_lacking + 1)
