"""Compute features of many utterances at once, of any kind in `pyasr.feats.kinds`.

    extractor = Extractor(MfccOptions())
    features = extractor([samples1, samples2])         # list of float32 (num_frames, extractor.dim)

Pitch features may be appended, as by Kaldi's `paste-feats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.feats.compute.pitch_features import PitchExtractor
from pyasr.feats.compute.spectrum import BLOCK_FRAMES, FrameBuffer, KernelSpectrum, Spectrum, spectrum_of
from pyasr.feats.feature_kind import kind_of_options, num_columns
from pyasr.feats.options import FrameOptions

_WARPS_AT_HAND = 32


class Extractor:
    """Computes features of waveforms, with the options of one of the kinds in `pyasr.feats.kinds`.

    `dim` columns; waveforms are float32 arrays at int16 scale and of `rate_hz` samples per second.
    """

    def __init__(self, options):
        _check_padding(options.frame)
        self.options, self.rate_hz = options, options.frame.sample_frequency
        self._kind = kind_of_options(type(options))(options)
        self._spectrum = lru_cache(_WARPS_AT_HAND)(self._make_spectrum)
        self._spectrum(1.0)  # reports wrong options immediately
        self._pitch = PitchExtractor(options.pitch, options.frame) if options.pitch.add_pitch else None
        self.dim = num_columns(options)

    def __call__(
        self, waveforms: list[np.ndarray], keys: list[str] | None = None, seed: int = 0, warp: float = 1.0
    ) -> list[np.ndarray]:
        """Features of each waveform, float32 (num_frames, dim); an utterance too short for a frame has no
        rows.

        keys, seed  select the random streams of each utterance's dither and noise
        warp        warp factor of the speaker's frequencies (`pyasr.feats.compute.mel`)
        """
        names: Sequence[str | int] = keys or range(len(waveforms))
        features = self._of_spectrum(self._dithered(waveforms, names, seed), self._spectrum(warp))
        if self.options.utterance.subtract_mean:
            features = [
                matrix - matrix.mean(0, dtype=np.float64).astype(np.float32) if len(matrix) else matrix
                for matrix in features
            ]
        if self._pitch:
            pitch = [self._pitch(wave, generator(seed, "pitch", key)) for wave, key in zip(waveforms, names)]
            features = [paste(own, of_pitch) for own, of_pitch in zip(features, pitch)]
        return features

    def check_warp(self, warp: float) -> None:
        """Raise UserError for a warp factor that these features do not support."""
        self._kind.filters(warp)

    def _make_spectrum(self, warp: float) -> KernelSpectrum | Spectrum:
        kind = self._kind
        return spectrum_of(
            self.options.frame, kind.filters(warp), kind.power, kind.logarithms, kind.energy is not None
        )

    def _dithered(
        self, waveforms: list[np.ndarray], keys: Sequence[str | int], seed: int
    ) -> list[np.ndarray]:
        """Waveforms with Gaussian noise. Kaldi draws new noise for each frame; here, overlapping frames share
        the noise of samples."""
        dither = self.options.frame.dither
        if dither == 0:
            return waveforms
        streams = [generator(seed, "dither", key) for key in keys]
        return [
            wave + dither * random.standard_normal(len(wave), dtype=np.float32)
            for wave, random in zip(waveforms, streams)
        ]

    def _of_spectrum(
        self, waveforms: list[np.ndarray], spectrum: KernelSpectrum | Spectrum
    ) -> list[np.ndarray]:
        buffer = FrameBuffer(waveforms, self.options.frame)
        features = np.empty((buffer.num_rows, self.options.dim), np.float32)
        for begin in range(0, buffer.num_rows, BLOCK_FRAMES):
            end = min(begin + BLOCK_FRAMES, buffer.num_rows)
            self._block(spectrum, buffer, begin, end, features[begin:end])
        return [features[row : row + num] for row, num in zip(buffer.first_row, buffer.num_frames)]

    def _block(
        self, spectrum: KernelSpectrum | Spectrum, buffer: FrameBuffer, begin: int, end: int, out: np.ndarray
    ) -> None:
        out[:, self._kind.place] = self._kind.columns(spectrum(buffer, begin, end))
        if self._kind.energy is not None:
            out[:, self._kind.energy] = spectrum.log_energy(end - begin, self.options.energy_floor)


def _check_padding(frame: FrameOptions) -> None:
    """Raise UserError if the spectrum of frames has no line at half the sampling rate."""
    if frame.fft_size % 2:
        found = (
            "--round-to-power-of-two=false needs frames of an even number of samples, not "
            f"{frame.window_size}"
        )
        raise UserError(f"{found}; change --frame-length, or omit --round-to-power-of-two")


def paste(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Features side by side, for the frames that both have; the numbers of frames differ by at most two."""
    num_frames = min(len(left), len(right))
    return np.concatenate([left[:num_frames], right[:num_frames]], axis=1)
