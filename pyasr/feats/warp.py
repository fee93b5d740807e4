r"""Vocal tract length perturbation: features as if the speaker's vocal tract were longer or shorter.

Reference: N. Jaitly, G. E. Hinton, "Vocal Tract Length Perturbation (VTLP) improves speech recognition", ICML workshop 2013. With a factor
a, the energy at frequency f is taken from

    G(f) = a f                                     f <= f0,     f0 = F min(a, 1) / a
         = H - (H - a f0) (H - f) / (H - f0)       f > f0

where H is the upper edge of the filter bank and F = 0.8 H. The paper moves the filters before they are applied to the spectrum. Here
log mel energies L are interpolated between neighbouring filters, which is a matrix on existing features:

    fbank:  L' = L W,      MFCC:  C' = C D^+ W D,   C = L D with the liftered cosine transform D

so that each utterance can be warped anew in every epoch at no cost. It commutes with mean normalisation, deltas and splicing.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.extractor import cepstral_matrix
from pyasr.feats.options import FbankOptions, MfccOptions
from pyasr.feats.spectrum import mel_scale

_BEND = 0.8  # share of the band below which warping is proportional


class Warper:
    """Matrices of warping for features of `options`. Raises UserError for features with energy as a column."""

    def __init__(self, options: MfccOptions | FbankOptions):
        if options.use_energy:
            raise UserError("--vtlp needs features without an energy column; make them with --use-energy=false")
        nyquist, mel = options.frame.sample_frequency / 2, options.mel
        self.high_hz = mel.high_freq if mel.high_freq > 0 else nyquist + mel.high_freq
        self.centres = np.linspace(mel_scale(mel.low_freq), mel_scale(self.high_hz), mel.num_mel_bins + 2)[1:-1]
        self._cosine = self._inverse = None
        if isinstance(options, MfccOptions):
            self._cosine = cepstral_matrix(options).numpy()
            self._inverse = np.linalg.pinv(self._cosine)

    def warped_hz(self, hertz: np.ndarray, factor: float) -> np.ndarray:
        """G(f)."""
        high, bend = self.high_hz, _BEND * self.high_hz * min(factor, 1) / factor
        return np.where(hertz <= bend, factor * hertz, high - (high - factor * bend) / (high - bend) * (high - hertz))

    def matrix(self, factor: float) -> np.ndarray:
        """The matrix M, float32 (dim, dim), such that `features @ M` are warped by `factor`."""
        num_bins = len(self.centres)
        target = mel_scale(self.warped_hz(700 * np.expm1(self.centres / 1127), factor))
        place = np.clip((target - self.centres[0]) / (self.centres[1] - self.centres[0]), 0, num_bins - 1)
        below = np.minimum(place.astype(int), num_bins - 2)
        weights = np.zeros((num_bins, num_bins))
        weights[below, np.arange(num_bins)] = 1 - (place - below)
        weights[below + 1, np.arange(num_bins)] += place - below
        if self._cosine is not None:
            weights = self._inverse @ weights @ self._cosine
        return weights.astype(np.float32)
