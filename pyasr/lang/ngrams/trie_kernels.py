"""Compiled loops over the nodes of `pyasr.lang.ngrams.trie`. `nodes` is always a `Nodes`."""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.lang.ngrams.arpa_kernels import find_key


@njit(cache=True, nogil=True)
def _child(last, first, history, word):
    """Node of `word` after a history, -1 if there is none. Every word is a unigram."""
    if history == 0:
        return np.int64(1 + word)
    at = find_key(last, first[history], first[history + 1], word)
    return first[history] + at if at >= 0 else np.int64(-1)


@njit(cache=True, nogil=True)
def _longest(last, first, suffixes, history, word):
    """Node of the longest n-gram that consists of a suffix of the history and `word`."""
    found = _child(last, first, history, word)
    while found < 0:
        history = suffixes[history]
        found = _child(last, first, history, word)
    return found


@njit(cache=True, nogil=True)
def suffixes_of(parents, last, first):
    """Longest other n-gram that ends with the same words, for each node; the root for unigrams. int32
    (num_nodes)."""
    suffixes = np.zeros(len(parents), np.int32)
    for node in range(1, len(parents)):
        if parents[node] > 0:
            suffixes[node] = _longest(last, first, suffixes, suffixes[parents[node]], last[node])
    return suffixes


@njit(cache=True, nogil=True)
def _log_probability(nodes, history, word):
    """log10 p(word | history)."""
    weight = 0.0
    while True:
        found = _child(nodes.last, nodes.first, history, word)
        if found >= 0 and (history == 0 or not np.isnan(nodes.logprob[found])):
            return weight + nodes.logprob[found]
        weight += nodes.backoff[history]
        history = nodes.suffixes[history]


@njit(cache=True, nogil=True)
def lower_estimates(nodes, begin, end):
    """log10 p(w | h') of the nodes begin ... end - 1, where h' is the history after back-off. float64 (end -
    begin)."""
    estimates = np.empty(end - begin)
    for node in range(begin, end):
        estimates[node - begin] = _log_probability(
            nodes, nodes.suffixes[nodes.parents[node]], nodes.last[node]
        )
    return estimates


@njit(cache=True, nogil=True)
def follow(nodes, model, words):
    """log10 p(w | h) under the model with the nodes `model`, of all nodes; 0 for the root. float64
    (num_nodes).

    words  the model's number of each word; -1 for a word of probability 0, after which histories begin
    """
    scores = np.zeros(len(nodes.parents))
    states = np.zeros(len(nodes.parents), np.int32)
    for node in range(1, len(nodes.parents)):
        history, word = states[nodes.parents[node]], words[nodes.last[node]]
        if word < 0:
            scores[node] = -np.inf
        else:
            scores[node] = _log_probability(model, history, word)
            states[node] = _longest(model.last, model.first, model.suffixes, history, word)
    return scores
