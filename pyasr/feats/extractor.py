"""Features of many utterances at once, equal to Kaldi's `compute-mfcc-feats`, `compute-fbank-feats` and `compute-plp-feats`.

    extractor = Extractor(MfccOptions())
    features = extractor([samples1, samples2])         # list of float32 (num_frames, extractor.dim)

Features of pitch may stand beside them, as Kaldi's `paste-feats` puts them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pyasr.base.seeds import generator
from pyasr.feats.kinds import Fbank, Mfcc
from pyasr.feats.options import FbankOptions, MfccOptions, PlpOptions
from pyasr.feats.pitch_features import PitchExtractor
from pyasr.feats.plp import Plp
from pyasr.feats.spectrum import BLOCK_FRAMES, FrameBuffer, Spectrum

KINDS = {MfccOptions: Mfcc, FbankOptions: Fbank, PlpOptions: Plp}
_WARPS_AT_HAND = 32


class Extractor:
    """Features of waveforms, by options of one of the classes in KINDS.

    `dim` columns; waveforms are float32 arrays at int16 scale and of `rate_hz` samples per second.
    """

    def __init__(self, options: MfccOptions | FbankOptions | PlpOptions):
        self.options, self.rate_hz = options, options.frame.sample_frequency
        self._kind = KINDS[type(options)](options)
        self._spectrum = lru_cache(_WARPS_AT_HAND)(self._make_spectrum)
        self._spectrum(1.0)  # says at once what is wrong with the options
        self._num_mel_columns = self._kind.dim + (options.use_energy and isinstance(options, FbankOptions))
        self._pitch = PitchExtractor(options.pitch, options.frame) if options.pitch.add_pitch else None
        self.dim = self._num_mel_columns + (self._pitch.dim if self._pitch else 0)

    def __call__(self, waveforms: list[np.ndarray], keys: list[str] | None = None, seed: int = 0, warp: float = 1.0) -> list[np.ndarray]:
        """Features of each waveform, float32 (num_frames, dim); an utterance too short for a frame gives no rows.

        keys, seed  name the random streams of each utterance's dither and noise
        warp        factor by which the speaker's frequencies are warped (`pyasr.feats.mel`)
        """
        keys = keys or list(range(len(waveforms)))
        features = self._mel_features(self._dithered(waveforms, keys, seed), self._spectrum(warp))
        if self._pitch:
            pitch = [self._pitch(wave, generator(seed, "pitch", key)) for wave, key in zip(waveforms, keys)]
            features = [paste(mel, beside) for mel, beside in zip(features, pitch)]
        return features

    def _make_spectrum(self, warp: float) -> Spectrum:
        return Spectrum(self.options.frame, self._kind.filters(warp), self._kind.power)

    def _dithered(self, waveforms: list[np.ndarray], keys: list, seed: int) -> list[np.ndarray]:
        """Waves with Gaussian noise; Kaldi draws anew for each frame, here overlapping frames share their samples' noise."""
        dither = self.options.frame.dither
        if dither == 0:
            return waveforms
        streams = [generator(seed, "dither", key) for key in keys]
        return [wave + dither * random.standard_normal(len(wave), dtype=np.float32) for wave, random in zip(waveforms, streams)]

    def _mel_features(self, waveforms: list[np.ndarray], spectrum: Spectrum) -> list[np.ndarray]:
        buffer = FrameBuffer(waveforms, self.options.frame)
        features = np.empty((buffer.num_rows, self._num_mel_columns), np.float32)
        for begin in range(0, buffer.num_rows, BLOCK_FRAMES):
            end = min(begin + BLOCK_FRAMES, buffer.num_rows)
            self._block(spectrum, buffer, begin, end, features[begin:end])
        return [features[row : row + num] for row, num in zip(buffer.first_row, buffer.num_frames)]

    def _block(self, spectrum: Spectrum, buffer: FrameBuffer, begin: int, end: int, out: np.ndarray) -> None:
        out[:, -self._kind.dim :] = self._kind.columns(spectrum(buffer, begin, end))
        if self.options.use_energy:
            out[:, 0] = spectrum.log_energy(end - begin, self.options.energy_floor)


def paste(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Features side by side, for the frames that both have: numbers of frames differ by two at most."""
    num_frames = min(len(left), len(right))
    return np.concatenate([left[:num_frames], right[:num_frames]], axis=1)
