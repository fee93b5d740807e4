"""Spectrograms, as Kaldi's `compute-spectrogram-feats` computes them."""

from __future__ import annotations

import numpy as np

from pyasr.feats.feature_kind import FeatureKind, feature_kind
from pyasr.feats.options import SpectrogramOptions


@feature_kind("spectrogram", "spectrograms", SpectrogramOptions)
class Spectrogram(FeatureKind):
    """Logarithms of the power spectrum."""

    logarithms, energy = True, 0

    def filters(self, warp: float) -> None:
        self.refuse_warp(warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return energies
