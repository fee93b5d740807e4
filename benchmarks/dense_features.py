"""MFCC and fbank of one waveform in float64, by the formulas of docs/data/features.md: the reference of
tests and benchmarks."""

from __future__ import annotations

import numpy as np

from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions, MfccOptions


def dense_features(options: MfccOptions | FbankOptions, wave: np.ndarray) -> np.ndarray:
    """Features (num_frames, dim), float64, with the Povey or the Hamming window and `snip_edges`, without
    dither and energy."""
    log_mel = np.log(
        np.maximum(
            power_spectra(options.frame, wave) @ triangles(options.mel, options.frame).T,
            np.finfo(np.float32).eps,
        )
    )
    return log_mel @ cosines(options) if isinstance(options, MfccOptions) else log_mel


def power_spectra(frame: FrameOptions, wave: np.ndarray) -> np.ndarray:
    """P[k] of all frames, k = 0 .. M / 2."""
    size, i = frame.window_size, np.arange(frame.window_size)
    begins = np.arange(max(0, 1 + (len(wave) - size) // frame.window_shift)) * frame.window_shift
    d = wave.astype(np.float64)[begins[:, None] + i]
    d -= d.mean(1, keepdims=True)
    p = d - frame.preemphasis_coefficient * d[:, np.maximum(i - 1, 0)]
    cosine = np.cos(2 * np.pi * i / (size - 1))
    w = {"povey": (0.5 - 0.5 * cosine) ** 0.85, "hamming": 0.54 - 0.46 * cosine}[frame.window_type]
    return np.abs(np.fft.rfft(w * p, frame.fft_size)) ** 2


def triangles(mel: MelOptions, frame: FrameOptions) -> np.ndarray:
    """T_b(mel(k f / M)), shape (num_mel_bins, M / 2 + 1)."""
    nyquist = frame.sample_frequency / 2
    high = mel.high_freq if mel.high_freq > 0 else nyquist + mel.high_freq
    edges = np.linspace(_mel(mel.low_freq), _mel(high), mel.num_mel_bins + 2)
    lines = _mel(np.linspace(0, nyquist, frame.fft_size // 2 + 1))
    weights = np.array([np.interp(lines, edges[b : b + 3], [0, 1, 0]) for b in range(mel.num_mel_bins)])
    weights[:, -1] = 0  # in Kaldi, the bin at half the sample frequency has weight zero
    return weights


def _mel(hertz):
    return 1127 * np.log(1 + np.asarray(hertz) / 700)


def cosines(options: MfccOptions) -> np.ndarray:
    """l(k) sqrt(2 / B) cos(pi k (b + 1/2) / B), and sqrt(1 / B) for k = 0; shape (num_mel_bins, num_ceps)."""
    num_bins, k = options.mel.num_mel_bins, np.arange(options.num_ceps)
    matrix = np.sqrt(2 / num_bins) * np.cos(np.pi * k * (np.arange(num_bins)[:, None] + 0.5) / num_bins)
    matrix[:, 0] = np.sqrt(1 / num_bins)
    return matrix * (1 + options.cepstral_lifter / 2 * np.sin(np.pi * k / options.cepstral_lifter))
