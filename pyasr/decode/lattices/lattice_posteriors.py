r"""Posteriors of a lattice's arcs by the forward-backward algorithm, and of transition-ids at each frame
(Kaldi's lattice-to-post).

With costs c(a) = graph + k * acoustic and f(s) of arcs a and final states s, all in the logarithmic semiring:

    alpha(s) = -log sum over paths from the start to s of exp(-cost),      beta(s) the same from s to the end
    p(a) = exp( beta(0) - alpha(source) - c(a) - beta(target) )
"""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.decode.lattices.lattice import Lattice, scaled_costs


def arc_posteriors(
    lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0
) -> tuple[np.ndarray, float]:
    """(p(a), float64 (num_arcs); log-likelihood of the lattice: the logarithm of the sum over its paths)."""
    if lattice.empty:
        return np.zeros(lattice.num_arcs), -np.inf
    costs, finals = scaled_costs(lattice, acoustic_scale, lm_scale)
    posteriors, total = forward_backward(lattice.sources, lattice.targets, costs, finals)
    return posteriors, -total


@njit(nogil=True, cache=True)
def _log_add(a, b):
    """-log(exp(-a) + exp(-b))."""
    if a > b:
        a, b = b, a
    return a if b == np.inf else a - np.log1p(np.exp(a - b))


@njit(nogil=True, cache=True)
def forward_backward(sources, targets, costs, finals):
    """(p(a), float64 (num_arcs); beta of the start). Without a path to a final state, p(a) is zero and beta
    is inf.

    sources, targets  (num_arcs), sorted by source; states in topological order, state 0 is the start
    costs, finals     float64 (num_arcs), (num_states)
    """
    alpha, beta = np.full(len(finals), np.inf), finals.copy()
    alpha[0] = 0.0
    for k in range(len(sources)):
        alpha[targets[k]] = _log_add(alpha[targets[k]], alpha[sources[k]] + costs[k])
    for k in range(len(sources) - 1, -1, -1):
        beta[sources[k]] = _log_add(beta[sources[k]], costs[k] + beta[targets[k]])
    posteriors = np.zeros(len(sources))
    if beta[0] < np.inf:
        for k in range(len(sources)):
            posteriors[k] = np.exp(beta[0] - alpha[sources[k]] - costs[k] - beta[targets[k]])
    return posteriors, beta[0]


def tid_posteriors(
    lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(frames, int32, ascending; transition-ids, int32; posteriors, float32). The posteriors of a frame add
    up to 1."""
    posteriors, _ = arc_posteriors(lattice, acoustic_scale, lm_scale)
    emitting = (lattice.ilabels != 0) & (posteriors > 0)
    frames = lattice.state_times[lattice.sources[emitting]]
    codes, index = np.unique(frames << 32 | lattice.ilabels[emitting], return_inverse=True)
    sums = np.bincount(index, posteriors[emitting], minlength=len(codes))
    return (codes >> 32).astype(np.int32), (codes & 0xFFFFFFFF).astype(np.int32), sums.astype(np.float32)
