r"""MFCC and filter-bank features of many utterances at once, equal to Kaldi's `compute-mfcc-feats` and `compute-fbank-feats`.

    extractor = Extractor(MfccOptions())
    features = extractor([samples1, samples2])         # list of float32 (num_frames, extractor.dim)

Cepstra of log mel energies L[b], b = 0..B-1:

    C[0] = sqrt(1/B) sum_b L[b],   C[k] = l(k) sqrt(2/B) sum_b L[b] cos(pi k (b + 1/2) / B),   l(k) = 1 + (Q/2) sin(pi k / Q)

with the liftering constant Q (22).
"""

from __future__ import annotations

import math

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.seeds import generator
from pyasr.feats.options import FbankOptions, MfccOptions
from pyasr.feats.spectrum import BLOCK_FRAMES, EPSILON, FrameBuffer, Spectrum, mel_filters


def cepstral_matrix(options: MfccOptions) -> torch.Tensor:
    """The liftered cosine transform, float64 (num_mel_bins, num_ceps)."""
    num_bins, lifter = options.mel.num_mel_bins, options.cepstral_lifter
    if options.num_ceps > num_bins:
        raise UserError(f"--num-ceps {options.num_ceps} is more than --num-mel-bins {num_bins}; lower it")
    order = torch.arange(options.num_ceps, dtype=torch.float64)
    position = torch.arange(num_bins, dtype=torch.float64)[:, None] + 0.5
    matrix = math.sqrt(2 / num_bins) * torch.cos(math.pi / num_bins * position * order)
    matrix[:, 0] = math.sqrt(1 / num_bins)
    if lifter > 0:
        matrix *= 1 + 0.5 * lifter * torch.sin(math.pi * order / lifter)
    return matrix


class Extractor:
    """Features of waveforms, by `MfccOptions` or `FbankOptions`.

    `dim` columns; waveforms are float32 arrays at int16 scale and of `rate_hz` samples per second.
    """

    def __init__(self, options: MfccOptions | FbankOptions):
        self.options, self.rate_hz = options, options.frame.sample_frequency
        self._is_mfcc = isinstance(options, MfccOptions)
        power = self._is_mfcc or options.use_power
        self._spectrum = Spectrum(options.frame, mel_filters(options.mel, options.frame), power)
        self._cepstra = cepstral_matrix(options) if self._is_mfcc else None
        num_bins = options.mel.num_mel_bins
        self.dim = options.num_ceps if self._is_mfcc else num_bins + options.use_energy

    def __call__(self, waveforms: list[np.ndarray], keys: list[str] | None = None, seed: int = 0) -> list[np.ndarray]:
        """Features of each waveform, float32 (num_frames, dim); an utterance too short for a frame gives no rows.

        keys, seed  name the random stream of each utterance's dither
        """
        if self.options.frame.dither > 0:
            waveforms = [self._dithered(wave, seed, key) for wave, key in zip(waveforms, keys or range(len(waveforms)))]
        buffer = FrameBuffer(waveforms, self.options.frame)
        features = torch.empty(buffer.num_rows, self.dim)
        with torch.inference_mode():
            for begin in range(0, buffer.num_rows, BLOCK_FRAMES):
                end = min(begin + BLOCK_FRAMES, buffer.num_rows)
                self._block(buffer, begin, end, features[begin:end])
        features = features.numpy()
        return [features[row : row + num] for row, num in zip(buffer.first_row, buffer.num_frames)]

    def _dithered(self, wave: np.ndarray, seed: int, key) -> np.ndarray:
        """`wave` with Gaussian noise; Kaldi draws anew for each frame, here overlapping frames share their samples' noise."""
        noise = generator(seed, "dither", key).standard_normal(len(wave), dtype=np.float32)
        return wave + self.options.frame.dither * noise

    def _block(self, buffer: FrameBuffer, begin: int, end: int, out: torch.Tensor) -> None:
        options = self.options
        mel = self._spectrum(buffer, begin, end)
        if self._is_mfcc or options.use_log_fbank:
            mel = mel.clamp_min_(EPSILON).log_()
        if self._is_mfcc:
            out.copy_(mel @ self._cepstra)
        else:
            out[:, int(options.use_energy) :] = mel
        if options.use_energy:
            out[:, 0] = self._spectrum.log_energy(end - begin, options.energy_floor)
