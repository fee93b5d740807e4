"""Energies of mel filters, as Kaldi's `compute-fbank-feats` computes them."""

from __future__ import annotations

import numpy as np

from pyasr.feats.compute.mel import mel_filters
from pyasr.feats.feature_kind import FeatureKind, feature_kind
from pyasr.feats.options import FbankOptions


@feature_kind("fbank", "log mel energies", FbankOptions)
class Fbank(FeatureKind):
    """Energies of mel filters, or their logarithms."""

    def __init__(self, options: FbankOptions):
        super().__init__(options)
        num_bins, is_last = options.mel.num_mel_bins, options.htk_compat
        self.power, self.logarithms = options.use_power, options.use_log_fbank
        self.place = slice(0, num_bins) if is_last or not options.use_energy else slice(1, None)
        self.energy = None if not options.use_energy else num_bins if is_last else 0

    def filters(self, warp: float) -> np.ndarray:
        return mel_filters(self.options.mel, self.options.frame, warp)

    def columns(self, energies: np.ndarray) -> np.ndarray:
        return energies
