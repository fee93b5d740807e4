r"""Perceptual linear prediction: cepstra of an all-pole model of the loudness of mel bands, as Kaldi's
`compute-plp-feats` computes them.

Reference: H. Hermansky, "Perceptual linear predictive (PLP) analysis of speech", JASA 87 (1990). With E[b],
b = 1..B, the energies of the mel filters of centre frequencies f_b, and E[0] = E[1], E[B+1] = E[B] after
compression,

    E[b] <- (e(f_b) E[b])^0.33333                                       equal loudness
            e(f) = (f^2 / (f^2 + 1.6e5))^2 (f^2 + 1.44e6) / (f^2 + 9.61e6)
    r[i] = sum_{b=0..B+1} w_b E[b] cos(pi i b / (B + 1)) / (B + 1)      autocorrelation
            w_b = 1/2 for b = 0 and B + 1, else 1

Durbin's recursion gives the predictor a[1..p] of minimal error G = r[0] - sum_j a[j] r[j], and the spectrum
G / |1 - sum_j a[j] z^-j|^2 has

    c[0] = ln G,      c[i] = a[i] + sum_{j=1..i-1} (j / i) c[j] a[i - j]      cepstrum

liftered like MFCC. As in Kaldi, c[0] is at least zero, and an error is at least 1e-5 times the previous
error.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.feats.compute.cepstra import as_in_htk, energy_of_cepstra, lifter
from pyasr.feats.compute.mel import EPSILON, filter_edges, inverse_mel_scale, mel_filters
from pyasr.feats.feature_kind import FeatureKind, feature_kind
from pyasr.feats.options import PlpOptions


@feature_kind("plp", "PLP", PlpOptions)
class Plp(FeatureKind):
    """Computes PLP from the energies of mel filters."""

    def __init__(self, options: PlpOptions):
        if options.num_ceps > options.lpc_order + 1:
            raise UserError(
                f"--num-ceps {options.num_ceps} is more than --lpc-order {options.lpc_order} plus one; "
                "lower it"
            )
        super().__init__(options)
        self.energy = energy_of_cepstra(options)
        self._autocorrelation = autocorrelation_matrix(options.mel.num_mel_bins, options.lpc_order)
        self._lifter = options.cepstral_scale * lifter(options.num_ceps, options.cepstral_lifter)

    def filters(self, warp: float) -> np.ndarray:
        """Mel filters times equal loudness."""
        mel, frame = self.options.mel, self.options.frame
        return mel_filters(mel, frame, warp) * equal_loudness(
            inverse_mel_scale(filter_edges(mel, frame, warp)[1:-1])
        )

    def columns(self, energies: np.ndarray) -> np.ndarray:
        """Cepstra (T, num_ceps) of energies (T, num_mel_bins)."""
        loudness = np.maximum(energies, EPSILON) ** self.options.compress_factor
        cepstra = lpc_cepstra(loudness @ self._autocorrelation, self.options.num_ceps)
        return as_in_htk(cepstra * self._lifter) if self.options.htk_compat else cepstra * self._lifter


def equal_loudness(hertz: np.ndarray) -> np.ndarray:
    """e(f)."""
    square = hertz**2
    return (square / (square + 1.6e5)) ** 2 * (square + 1.44e6) / (square + 9.61e6)


def autocorrelation_matrix(num_bins: int, order: int) -> np.ndarray:
    """The matrix (num_bins, order + 1) from compressed energies to r[0..order]."""
    band = np.arange(num_bins + 2)[:, None]
    matrix = np.cos(math.pi * band * np.arange(order + 1) / (num_bins + 1)) / (num_bins + 1)
    matrix[[0, -1]] /= 2
    matrix[1] += matrix[0]
    matrix[-2] += matrix[-1]
    return matrix[1:-1]


@njit(nogil=True, cache=True)
def lpc_cepstra(autocorrelations, num_ceps):
    """Cepstra (T, num_ceps) of the all-pole models of autocorrelations (T, order + 1)."""
    order = autocorrelations.shape[1] - 1
    a, before, out = np.empty(order + 1), np.empty(order + 1), np.empty((len(autocorrelations), num_ceps))
    for t in range(len(out)):
        out[t, 0] = max(np.log(_durbin(autocorrelations[t], a, before)), 0.0)
        for i in range(1, num_ceps):
            out[t, i] = a[i]
            for j in range(1, i):
                out[t, i] += j * out[t, j] * a[i - j] / i
    return out


@njit(nogil=True, cache=True)
def _durbin(r, a, before):
    """Fill a[1..order] with the predictor of minimal error; returns this error."""
    error = r[0]
    for i in range(1, len(r)):
        before[:i] = a[:i]
        reflection = r[i]
        for j in range(1, i):
            reflection -= before[j] * r[i - j]
        reflection /= error
        a[i] = reflection
        for j in range(1, i):
            a[j] = before[j] - reflection * before[i - j]
        error *= max(1 - reflection**2, 1e-5)
    return error
