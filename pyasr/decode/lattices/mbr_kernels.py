"""Compiled loops of minimum Bayes risk decoding; `pyasr.decode.lattices.mbr` has the equations, with the same
notation.

A lattice is given by its arcs in the order of their targets: arcs into state n are
in_offsets[n]:in_offsets[n + 1]. The share of arc a into state n is P(path uses a | path passes n); shares sum
to one over the arcs into a state. Row n of alpha' contains alpha'(n, q) for lows[n] <= q <= highs[n] and
begins at rows[n].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit

DELTA = 1e-5
_MATCH, _INSERT, _DELETE = 1, 2, 3


class Arcs(NamedTuple):
    """The arcs of a lattice; see the module's docstring."""

    in_offsets: np.ndarray
    sources: np.ndarray
    words: np.ndarray
    shares: np.ndarray


class Band(NamedTuple):
    """The entries of alpha' that are computed; see the module's docstring."""

    lows: np.ndarray
    highs: np.ndarray
    rows: np.ndarray


@njit(nogil=True, cache=True)
def forward_shares(in_offsets, sources, costs):
    """The share of each arc in its target, with paths weighted by exp(-cost)."""
    num_states = len(in_offsets) - 1
    alpha, shares = np.full(num_states, -np.inf), np.zeros(len(sources))
    alpha[0] = 0.0
    for n in range(1, num_states):
        greatest = -np.inf
        for k in range(in_offsets[n], in_offsets[n + 1]):
            shares[k] = alpha[sources[k]] - costs[k]
            greatest = max(greatest, shares[k])
        total = 0.0
        for k in range(in_offsets[n], in_offsets[n + 1]):
            shares[k] = np.exp(shares[k] - greatest) if greatest > -np.inf else 0.0
            total += shares[k]
        for k in range(in_offsets[n], in_offsets[n + 1]):
            shares[k] = shares[k] / total if total > 0 else 0.0
        alpha[n] = greatest + np.log(total) if total > 0 else -np.inf
    return shares


@njit(nogil=True, cache=True)
def _arc_row(before, low, high, top, word, hypothesis, row, choices):
    """Compute alpha'(a, q) and its choice in (1) for q = low ... top; `before` is alpha'(s_a, q) for q = low
    ... high."""
    inserted = 1.0 + DELTA if word != 0 else 0.0
    for q in range(low, top + 1):
        i = q - low
        best, how = np.inf, _MATCH
        if i > 0 and q - 1 <= high:
            best = before[i - 1] + (0.0 if word == hypothesis[q] else 1.0)
        if q <= high and before[i] + inserted < best:
            best, how = before[i] + inserted, _INSERT
        if i > 0 and row[i - 1] + (hypothesis[q] != 0) < best:
            best, how = row[i - 1] + (hypothesis[q] != 0), _DELETE
        row[i], choices[i] = best, how


@njit(nogil=True, cache=True)
def edit_distances(arcs, hypothesis, band):
    """alpha', flat. `hypothesis`: words 1 ... Q, entry 0 unused; alpha'(last state, Q) is the last value."""
    in_offsets, sources, words, shares = arcs.in_offsets, arcs.sources, arcs.words, arcs.shares
    lows, highs, rows = band.lows, band.highs, band.rows
    distances = np.zeros(rows[-1])
    row, choices = np.empty(len(hypothesis)), np.empty(len(hypothesis), np.int8)
    for q in range(1, highs[0] + 1):
        distances[rows[0] + q] = distances[rows[0] + q - 1] + (hypothesis[q] != 0)
    for n in range(1, len(in_offsets) - 1):
        for k in range(in_offsets[n], in_offsets[n + 1]):
            if shares[k] > 0.0:
                s = sources[k]
                _arc_row(
                    distances[rows[s] : rows[s + 1]],
                    lows[s],
                    highs[s],
                    highs[n],
                    words[k],
                    hypothesis,
                    row,
                    choices,
                )
                for q in range(lows[n], highs[n] + 1):
                    distances[rows[n] + q - lows[n]] += shares[k] * row[q - lows[s]]
    return distances


@njit(nogil=True, cache=True)
def bin_statistics(arcs, hypothesis, band, distances, times):
    """(positions q, words w, gamma(q, w), sum of gamma * begin, sum of gamma * end), one entry for each pair
    that occurs."""
    in_offsets, sources, words, shares = arcs.in_offsets, arcs.sources, arcs.words, arcs.shares
    lows, highs, rows = band.lows, band.highs, band.rows
    places, keys = {np.int64(-1): np.int64(0)}, [np.int64(-1)]  # the first entry of each only sets its type
    gammas, begins, ends = [0.0], [0.0], [0.0]
    bins = (places, keys, gammas, begins, ends)
    beta = np.zeros(rows[-1])
    beta[-1] = 1.0
    length = len(hypothesis)
    row, choices, share = np.empty(length), np.empty(length, np.int8), np.empty(length)
    for n in range(len(in_offsets) - 2, 0, -1):
        for k in range(in_offsets[n], in_offsets[n + 1]):
            if shares[k] == 0.0:
                continue
            s, low = sources[k], lows[sources[k]]
            _arc_row(
                distances[rows[s] : rows[s + 1]], low, highs[s], highs[n], words[k], hypothesis, row, choices
            )
            share[: highs[n] - low + 1] = 0.0
            for q in range(lows[n], highs[n] + 1):
                share[q - low] = shares[k] * beta[rows[n] + q - lows[n]]
            _spread(
                bins, beta[rows[s] :], low, highs[n], choices, share, (words[k], times[s], times[n]), length
            )
    for q in range(highs[0], 0, -1):
        _count(bins, q, 0, beta[rows[0] + q], times[0], times[0], length)
        beta[rows[0] + q - 1] += beta[rows[0] + q]
    found = np.array(keys)[1:]
    return found % length, found // length, np.array(gammas)[1:], np.array(begins)[1:], np.array(ends)[1:]


@njit(nogil=True, cache=True)
def _spread(bins, beta, low, top, choices, share, arc, length):
    """Propagate beta'(a, q) of one arc back along the choices, and add to gamma what is aligned with each q.

    beta  beta' from the row of the arc's source on
    arc   word, begin and end time of the arc
    """
    word, begin, end = arc
    for q in range(top, low - 1, -1):
        weight = share[q - low]
        if weight == 0.0:
            continue
        how = choices[q - low]
        if how == _MATCH:
            beta[q - 1 - low] += weight
            _count(bins, q, word, weight, begin, end, length)
        elif how == _INSERT:
            beta[q - low] += weight
        else:
            share[q - 1 - low] += weight
            _count(bins, q, 0, weight, end, end, length)


@njit(nogil=True, cache=True)
def _count(bins, q, word, weight, begin, end, length):
    places, keys, gammas, begins, ends = bins
    if weight == 0.0:
        return
    key = np.int64(word) * length + q
    if key in places:
        at = places[key]
    else:
        at = len(keys)
        places[key] = at
        keys.append(key)
        gammas.append(0.0)
        begins.append(0.0)
        ends.append(0.0)
    gammas[at] += weight
    begins[at] += weight * begin
    ends[at] += weight * end
