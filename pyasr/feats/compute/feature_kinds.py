r"""Compute MFCC, filter-bank and spectrogram features from the energies E[b], b = 0..B-1, of mel filters, or
from the spectrum itself.

    L[b] = ln max(E[b], eps),       C[0] = sqrt(1/B) sum_b L[b]
    C[k] = l(k) sqrt(2/B) sum_b L[b] cos(pi k (b + 1/2) / B)

with the lifter l(k) = 1 + (Q/2) sin(pi k / Q), Q = 22. With htk_compat, the columns are in HTK's order: C[0],
without the factor sqrt(1/2) relative to the others, or the energy, is the last. A kind of features for
`Extractor` has

    power                True: computed from the power spectrum; False: from the magnitude
    dim                  number of columns
    place                the columns that `columns` returns
    energy               the column of the log energy; None: there is none
    filters(warp)        weights (fft_size / 2 + 1, num_mel_bins), float64, for a warp factor of the speaker's
                         frequencies; None: the spectrum itself
    columns(energies)    float64 (T, num_mel_bins) to float64 (T, dim)
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.compute.mel import EPSILON, mel_filters
from pyasr.feats.options import FbankOptions, MfccOptions, PlpOptions, SpectrogramOptions


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
    matrix *= lifter(options.num_ceps, options.cepstral_lifter)
    return (
        as_in_htk(matrix * np.where(np.arange(options.num_ceps) == 0, math.sqrt(2), 1))
        if options.htk_compat
        else matrix
    )


def as_in_htk(columns: np.ndarray) -> np.ndarray:
    """Move the first column to the end."""
    return np.roll(columns, -1, axis=1)


def energy_of_cepstra(options: MfccOptions | PlpOptions) -> int | None:
    """The column of the log energy, which replaces C[0]; None without energy."""
    return None if not options.use_energy else options.num_ceps - 1 if options.htk_compat else 0


class Mfcc:
    """Mel-frequency cepstral coefficients."""

    power = True

    def __init__(self, options: MfccOptions):
        self.options, self.dim, self._cosine = options, options.num_ceps, cepstral_matrix(options)
        self.place, self.energy = slice(None), energy_of_cepstra(options)

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(energies, EPSILON)) @ self._cosine


class Fbank:
    """Energies of mel filters, or their logarithms."""

    def __init__(self, options: FbankOptions):
        num_bins, is_last = options.mel.num_mel_bins, options.htk_compat
        self.options, self.dim, self.power = options, num_bins + options.use_energy, options.use_power
        self.place = slice(0, num_bins) if is_last or not options.use_energy else slice(1, None)
        self.energy = None if not options.use_energy else num_bins if is_last else 0

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(energies, EPSILON)) if self.options.use_log_fbank else energies


class Spectrogram:
    """Logarithms of the power spectrum."""

    power = True

    def __init__(self, options: SpectrogramOptions):
        self.dim, self.place, self.energy = options.frame.fft_size // 2 + 1, slice(None), 0

    def filters(self, warp: float) -> None:
        if warp != 1:
            raise UserError(
                "spectrograms cannot be warped; remove spk2warp and utt2warp from the data directory"
            )

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(energies, EPSILON))
