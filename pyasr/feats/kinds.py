r"""What makes MFCC and filter-bank features of the energies E[b], b = 0..B-1, of mel filters.

    L[b] = ln max(E[b], eps),       C[0] = sqrt(1/B) sum_b L[b],   C[k] = l(k) sqrt(2/B) sum_b L[b] cos(pi k (b + 1/2) / B)

with the lifter l(k) = 1 + (Q/2) sin(pi k / Q), Q = 22. A kind of features for `Extractor` has

    power                whether it is made of the power spectrum; else of the magnitude
    dim                  columns
    filters(warp)        weights (fft_size / 2 + 1, num_mel_bins), float64, for a warp factor of the speaker's frequencies
    columns(energies)    float64 (T, num_mel_bins) to float64 (T, dim)
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.mel import EPSILON, mel_filters
from pyasr.feats.options import FbankOptions, MfccOptions

def lifter(num_ceps: int, constant: float) -> np.ndarray:
    """l(k) for k = 0..num_ceps-1; ones for a constant of zero."""
    if constant == 0:
        return np.ones(num_ceps)
    return 1 + 0.5 * constant * np.sin(math.pi * np.arange(num_ceps) / constant)


def cepstral_matrix(options: MfccOptions) -> np.ndarray:
    """The liftered cosine transform, float64 (num_mel_bins, num_ceps)."""
    num_bins = options.mel.num_mel_bins
    if options.num_ceps > num_bins:
        raise UserError(f"--num-ceps {options.num_ceps} is more than --num-mel-bins {num_bins}; lower it")
    position = np.arange(num_bins)[:, None] + 0.5
    matrix = math.sqrt(2 / num_bins) * np.cos(math.pi / num_bins * position * np.arange(options.num_ceps))
    matrix[:, 0] = math.sqrt(1 / num_bins)
    return matrix * lifter(options.num_ceps, options.cepstral_lifter)


class Mfcc:
    """Mel-frequency cepstral coefficients."""

    power = True

    def __init__(self, options: MfccOptions):
        self.options, self.dim, self._cosine = options, options.num_ceps, cepstral_matrix(options)

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(energies, EPSILON)) @ self._cosine


class Fbank:
    """Energies of mel filters, or their logarithms."""

    def __init__(self, options: FbankOptions):
        self.options, self.dim, self.power = options, options.mel.num_mel_bins, options.use_power

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(energies, EPSILON)) if self.options.use_log_fbank else energies
