"""Mel-frequency cepstral coefficients, as Kaldi's `compute-mfcc-feats` computes them."""

from __future__ import annotations

import numpy as np

from pyasr.feats.compute.cepstra import cepstral_matrix, energy_of_cepstra
from pyasr.feats.compute.mel import mel_filters
from pyasr.feats.feature_kind import FeatureKind, feature_kind
from pyasr.feats.options import MfccOptions


@feature_kind("mfcc", "MFCC", MfccOptions)
class Mfcc(FeatureKind):
    """Mel-frequency cepstral coefficients."""

    logarithms = True

    def __init__(self, options: MfccOptions):
        super().__init__(options)
        self._cosine, self.energy = cepstral_matrix(options), energy_of_cepstra(options)

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return energies @ self._cosine
