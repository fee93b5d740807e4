r"""Vocal tract length perturbation: features as if the speaker's vocal tract were longer or shorter.

Reference: N. Jaitly, G. E. Hinton, "Vocal Tract Length Perturbation (VTLP) improves speech recognition", ICML
workshop 2013. With a factor a, the energy at frequency f is taken from

    G(f) = a f                                     f <= f0,     f0 = F min(a, 1) / a
         = H - (H - a f0) (H - f) / (H - f0)       f > f0

where H is the upper edge of the filter bank and F = 0.8 H: the warping of `pyasr.feats.compute.mel` by 1 / a,
without a bend at its lower end. The paper moves the filters before they are applied to the spectrum. Here,
log mel energies L are interpolated between neighbouring filters, which is a matrix product with existing
features:

    fbank:  L' = L W,      MFCC:  C' = C D^+ W D,   C = L D with the liftered cosine transform D

so that each utterance can be warped differently in every epoch at no cost. It commutes with mean
normalisation, deltas and splicing. Pitch features next to them are unchanged.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.compute.cepstra import cepstral_matrix
from pyasr.feats.compute.mel import band_hz, filter_edges, inverse_mel_scale, mel_scale, warped_hz
from pyasr.feats.options import FbankOptions, MfccOptions

_BEND = 0.8  # share of the band below which warping is proportional


class Warper:
    """Warping matrices for features with `options`. Raises UserError for features of another kind, and for an
    energy column."""

    def __init__(self, options: MfccOptions | FbankOptions):
        if not isinstance(options, (MfccOptions, FbankOptions)):
            raise UserError("--vtlp supports only MFCC and filter-bank features; train on those")
        if options.use_energy:
            raise UserError(
                "--vtlp needs features without an energy column; compute them with --use-energy=false"
            )
        self.high_hz = band_hz(options.mel, options.frame)[1]
        self.centres = filter_edges(options.mel, options.frame)[1:-1]
        self._num_pitch_columns = options.pitch.process.dim if options.pitch.add_pitch else 0
        self._cosine: np.ndarray | None = None
        self._inverse: np.ndarray | None = None
        if isinstance(options, MfccOptions):
            self._cosine = cepstral_matrix(options)
            self._inverse = np.linalg.pinv(self._cosine)

    def warped_hz(self, hertz: np.ndarray, factor: float) -> np.ndarray:
        """G(f)."""
        return warped_hz(hertz, 1 / factor, (0, self.high_hz), (0, _BEND * self.high_hz))

    def matrix(self, factor: float) -> np.ndarray:
        """The matrix M, float32 (dim, dim), such that `features @ M` are warped by `factor`."""
        num_bins = len(self.centres)
        target = mel_scale(self.warped_hz(inverse_mel_scale(self.centres), factor))
        place = np.clip((target - self.centres[0]) / (self.centres[1] - self.centres[0]), 0, num_bins - 1)
        below = np.minimum(place.astype(int), num_bins - 2)
        weights = np.zeros((num_bins, num_bins))
        weights[below, np.arange(num_bins)] = 1 - (place - below)
        weights[below + 1, np.arange(num_bins)] += place - below
        if self._cosine is not None and self._inverse is not None:
            weights = self._inverse @ weights @ self._cosine
        whole = np.eye(len(weights) + self._num_pitch_columns, dtype=np.float32)
        whole[: len(weights), : len(weights)] = weights
        return whole
