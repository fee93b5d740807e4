r"""Cepstra of the energies E[b], b = 0..B-1, of mel filters.

    L[b] = ln max(E[b], eps),       C[0] = sqrt(1/B) sum_b L[b]
    C[k] = l(k) sqrt(2/B) sum_b L[b] cos(pi k (b + 1/2) / B)

with the lifter l(k) = 1 + (Q/2) sin(pi k / Q), Q = 22. With htk_compat, the columns are in HTK's order: C[0],
without the factor sqrt(1/2) relative to the others, or the energy, is the last.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.options import MfccOptions, PlpOptions


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
