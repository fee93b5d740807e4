r"""Short-time spectra and mel energies of many utterances at once, with Kaldi's definitions.

Notation, for a frame x of N samples at rate f, padded with zeros to M samples (M a power of two):

    d[i] = x[i] - mean(x)                                     offset removed
    p[i] = d[i] - c d[i-1],  p[0] = (1 - c) d[0]              preemphasis
    P[k] = |sum_i w[i] p[i] exp(-2 pi j i k / M)|^2           power spectrum, w the window
    E[b] = sum_k T_b(mel(k f / M)) P[k]                       mel(h) = 1127 ln(1 + h / 700), T_b a triangle
    L[b] = ln max(E[b], eps)

All utterances are in one buffer, each at a multiple of the shift, so the frames are a strided view of it;
frames across two utterances are also computed, and dropped. A block of frames stays in the processor's cache
from the samples to the features.

All computations use float64: for a steady tone over digital silence, other filters contain less energy than
float32's rounding errors.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pyasr.feats.compute.mel import EPSILON
from pyasr.feats.options import FrameOptions

BLOCK_FRAMES = 256


def window_function(options: FrameOptions) -> np.ndarray:
    """The window of `options.window_size` samples, float64."""
    size = options.window_size
    phase = 2 * math.pi * np.arange(size) / (size - 1)
    hanning = 0.5 - 0.5 * np.cos(phase)
    windows = {
        "hanning": lambda: hanning,
        "povey": lambda: hanning**0.85,
        "hamming": lambda: 0.54 - 0.46 * np.cos(phase),
        "rectangular": lambda: np.ones_like(phase),
        "blackman": lambda: (
            options.blackman_coeff - 0.5 * np.cos(phase) + (0.5 - options.blackman_coeff) * np.cos(2 * phase)
        ),
    }
    return windows[options.window_type]()


def padded_signal(samples: np.ndarray, options: FrameOptions) -> np.ndarray:
    """Samples such that frame t begins at t * shift; without `snip_edges`, the ends are reflected."""
    if options.snip_edges:
        return samples
    num_frames = options.num_frames(len(samples))
    first = options.first_sample
    return samples[
        reflected(
            np.arange(first, first + (num_frames - 1) * options.window_shift + options.window_size),
            len(samples),
        )
    ]


def reflected(index: np.ndarray, num_samples: int) -> np.ndarray:
    """Map indices beyond the ends of a signal into it: ... 1 0 | 0 1 2 ... n-1 | n-1 n-2 ..."""
    period = 2 * num_samples
    index = index % period
    return np.where(index < num_samples, index, period - 1 - index)


class FrameBuffer:
    """Many waveforms in one buffer, in which all frames are a strided view.

    `signal` (samples,) float64; frame t of utterance u is row `first_row[u] + t` of the view.
    """

    def __init__(self, waveforms: list[np.ndarray], options: FrameOptions):
        self.options = options
        shift = options.window_shift
        self.num_frames = [options.num_frames(len(wave)) for wave in waveforms]
        pieces = [
            padded_signal(wave, options) if n else wave[:0] for wave, n in zip(waveforms, self.num_frames)
        ]
        rows = np.cumsum([0] + [-(-len(piece) // shift) for piece in pieces])
        self.first_row = rows[:-1]
        self.num_rows = int(rows[-1])
        buffer = np.zeros(self.num_rows * shift + options.window_size)
        for row, piece in zip(rows, pieces):
            buffer[row * shift : row * shift + len(piece)] = piece
        self.signal = buffer

    def frames(self, begin: int, end: int) -> np.ndarray:
        """Rows begin..end-1 of the strided view, shape (end - begin, window_size)."""
        shift, size = self.options.window_shift, self.options.window_size
        return sliding_window_view(self.signal, size)[begin * shift : end * shift : shift]


class Spectrum:
    """Computes weighted sums of the spectra of blocks of windowed frames.

    weights  (fft_size / 2 + 1, num_columns): the filters; None: the power of each spectral line itself
    power    power spectrum; False: magnitude
    """

    def __init__(self, options: FrameOptions, weights: np.ndarray | None, power: bool = True):
        self.options, self.power = options, power
        self.window = window_function(options)
        # the power of a spectral line is the sum of the squares of its real and imaginary part: both get the
        # line's weight
        self.weights = np.repeat(weights, 2, axis=0) if power and weights is not None else weights
        self._padded = np.zeros((BLOCK_FRAMES, options.fft_size))
        self._centred = np.empty((BLOCK_FRAMES, options.window_size))

    def __call__(self, buffer: FrameBuffer, begin: int, end: int) -> np.ndarray:
        """Weighted sums (end - begin, num_columns) of rows begin..end-1; at most BLOCK_FRAMES rows."""
        size, c = self.options.window_size, self.options.preemphasis_coefficient
        raw = buffer.frames(begin, end)
        mean = raw.mean(1, keepdims=True) if self.options.remove_dc_offset else 0.0
        centred = np.subtract(raw, mean, out=self._centred[: end - begin])
        padded = self._padded[: end - begin]
        frames = padded[:, :size]
        np.multiply(centred[:, :-1], -c, out=frames[:, 1:])
        frames[:, 1:] += centred[:, 1:]
        frames[:, 0] = (1 - c) * centred[:, 0]
        frames *= self.window
        spectrum = np.fft.rfft(padded)
        if self.power:
            parts = spectrum.view(np.float64)
            np.square(parts, out=parts)
            return parts[:, ::2] + parts[:, 1::2] if self.weights is None else parts @ self.weights
        return np.abs(spectrum) @ self.weights

    def log_energy(self, num_rows: int, floor: float) -> np.ndarray:
        """Log energies (num_rows,) of the frames transformed last; with `raw_energy`, before preemphasis and
        windowing."""
        frames = self._centred if self.options.raw_energy else self._padded[:, : self.options.window_size]
        frames = frames[:num_rows]
        energy = np.log(np.maximum(np.einsum("ti,ti->t", frames, frames), EPSILON))
        return np.maximum(energy, math.log(floor)) if floor > 0 else energy
