"""Loops over the arcs of lattices."""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit


@njit(nogil=True, cache=True)
def arc_sums(begins, lengths, pdfs, loglikes):
    """The sum of loglikes[t, pdf] over each arc's frames t, float64 (num_arcs). pdfs: those of all arcs,
    concatenated."""
    sums, k = np.zeros(len(begins)), 0
    for a in range(len(begins)):
        for t in range(begins[a], begins[a] + lengths[a]):
            sums[a] += loglikes[t, pdfs[k]]
            k += 1
    return sums


@njit(nogil=True, cache=True)
def spread(begins, lengths, pdfs, weights, out):
    """Add each arc's weight to out[t, pdf] at all its frames."""
    k = 0
    for a in range(len(begins)):
        for t in range(begins[a], begins[a] + lengths[a]):
            out[t, pdfs[k]] += weights[a]
            k += 1


@njit(nogil=True, cache=True)
def expected_accuracies(sources, targets, posteriors, accuracies, num_states):
    """(c_a: expected accuracy of the paths through each arc, float64 (num_arcs); expected accuracy of all
    paths).

    Sums over paths are averages over the arcs into and out of a state, weighted by their posteriors:

        before(s) = sum over a into s of p_a (before(source) + A_a) / p_s,     p_s = sum over a into s of p_a
        behind(s) = sum over a out of s of p_a (A_a + behind(target)) / p_s
        c_a = before(source) + A_a + behind(target)
    """
    before, behind, occupancy = np.zeros(num_states), np.zeros(num_states), np.zeros(num_states)
    occupancy[0] = 1.0
    for a in range(len(sources)):
        occupancy[targets[a]] += posteriors[a]
    for a in range(len(sources)):
        s, t = sources[a], targets[a]
        if posteriors[a] > 0:
            before[t] += posteriors[a] / occupancy[t] * (before[s] + accuracies[a])
    for a in range(len(sources) - 1, -1, -1):
        s, t = sources[a], targets[a]
        if posteriors[a] > 0:
            behind[s] += posteriors[a] / occupancy[s] * (accuracies[a] + behind[t])
    through = np.empty(len(sources))
    for a in range(len(sources)):
        through[a] = before[sources[a]] + accuracies[a] + behind[targets[a]]
    return through, behind[0]
