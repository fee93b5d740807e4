r"""Short-time spectra and mel energies of many utterances at once, with Kaldi's definitions.

Notation, for a frame x of N samples at rate f, padded with zeros to M samples (M a power of two):

    d[i] = x[i] - mean(x)                                     offset removed
    p[i] = d[i] - c d[i-1],  p[0] = (1 - c) d[0]              preemphasis
    P[k] = |sum_i w[i] p[i] exp(-2 pi j i k / M)|^2           power spectrum, w the window
    E[b] = sum_k T_b(mel(k f / M)) P[k]                       mel(h) = 1127 ln(1 + h / 700), T_b a triangle
    L[b] = ln max(E[b], eps)

The samples of all utterances are in one array. A block of frames, possibly of several utterances, stays in
the processor's cache from the samples to the features. Kernels compute the spectra if M is one of
`spectrum_kernels.SIZES`, otherwise numpy.

All computations use float64: for a steady tone over digital silence, other filters contain less energy than
float32's rounding errors.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.compiled.lanes import LANES
from pyasr.feats.compute import spectrum_kernels
from pyasr.feats.compute.mel import EPSILON
from pyasr.feats.options import FrameOptions

BLOCK_FRAMES = 512


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


def padded_signal(samples: np.ndarray, options: FrameOptions) -> list[np.ndarray]:
    """Parts of a signal such that frame t begins at t * shift; without `snip_edges`, the ends are
    reflected."""
    if options.snip_edges:
        return [samples]
    num, first = len(samples), options.first_sample
    end = first + (options.num_frames(num) - 1) * options.window_shift + options.window_size
    before, after = np.arange(first, min(end, 0)), np.arange(max(num, first), end)
    return [samples[reflected(before, num)], samples[max(first, 0) : end], samples[reflected(after, num)]]


def reflected(index: np.ndarray, num_samples: int) -> np.ndarray:
    """Map indices beyond the ends of a signal into it: ... 1 0 | 0 1 2 ... n-1 | n-1 n-2 ..."""
    period = 2 * num_samples
    index = index % period
    return np.where(index < num_samples, index, period - 1 - index)


class FrameBuffer:
    """The frames of many waveforms.

    `samples` (N,) float32; `begins` (num_rows + LANES - 1,) int64: frame t of utterance u begins at element
    begins[first_row[u] + t], and the last LANES - 1 are copies of the last frame.
    """

    def __init__(self, waveforms: list[np.ndarray], options: FrameOptions):
        self.options = options
        self.num_frames = [options.num_frames(len(wave)) for wave in waveforms]
        ends = np.cumsum([0, *self.num_frames])
        self.first_row, self.num_rows = ends[:-1], int(ends[-1])
        pieces = [padded_signal(wave, options) if n else [] for wave, n in zip(waveforms, self.num_frames)]
        first_sample = np.cumsum([0] + [sum(map(len, parts)) for parts in pieces])[:-1]
        self.samples = np.concatenate(
            [part for parts in pieces for part in parts] + [np.zeros(LANES, np.float32)], dtype=np.float32
        )
        before = first_sample - self.first_row * options.window_shift
        begins = np.repeat(before, self.num_frames) + np.arange(self.num_rows) * options.window_shift
        self.begins = np.append(begins, np.repeat(begins[-1:], LANES - 1))

    def frames(self, begin: int, end: int) -> np.ndarray:
        """Rows begin..end-1, float64 (end - begin, window_size)."""
        places = self.begins[begin:end, None] + np.arange(self.options.window_size)
        return self.samples[places].astype(np.float64)


def spectrum_of(
    options: FrameOptions,
    weights: np.ndarray | None,
    power: bool = True,
    logarithms: bool = False,
    energy: bool = False,
) -> KernelSpectrum | Spectrum:
    """Computes weighted sums of the spectra of blocks of windowed frames.

    weights     (fft_size / 2 + 1, num_columns): the filters; None: each spectral line itself
    power       power spectrum; False: magnitude
    logarithms  L instead of E
    energy      whether the energies of frames are needed
    """
    if options.fft_size in spectrum_kernels.SIZES:
        return KernelSpectrum(options, weights, power, logarithms, energy)
    return Spectrum(options, weights, power, logarithms)


class KernelSpectrum:
    """See `spectrum_of`; computes LANES frames side by side."""

    def __init__(
        self, options: FrameOptions, weights: np.ndarray | None, power: bool, logarithms: bool, energy: bool
    ):
        self._plan = spectrum_kernels.plan_of(window_function(options), options.fft_size, weights)
        kind = spectrum_kernels.RAW_ENERGY if options.raw_energy else spectrum_kernels.WINDOWED_ENERGY
        self._steps = spectrum_kernels.Steps(
            options.remove_dc_offset,
            float(options.preemphasis_coefficient),
            kind if energy else spectrum_kernels.NO_ENERGY,
            power,
            logarithms,
        )
        num_columns = len(self._plan.filter_ends)
        self._work = spectrum_kernels.workspace(options.fft_size)
        self._sums = spectrum_kernels.workspace(num_columns + LANES - 1)
        self._out = np.empty((BLOCK_FRAMES, num_columns))
        self._energies = np.empty(BLOCK_FRAMES)

    def __call__(self, buffer: FrameBuffer, begin: int, end: int) -> np.ndarray:
        """Weighted sums (end - begin, num_columns) of rows begin..end-1; at most BLOCK_FRAMES rows. The next
        call replaces them."""
        num_rows = -(-(end - begin) // LANES) * LANES
        signal = spectrum_kernels.Signal(buffer.samples, buffer.begins[begin : begin + num_rows])
        out, energies = self._out[:num_rows], self._energies[:num_rows]
        spectrum_kernels.weighted_sums(signal, self._plan, self._steps, self._work, self._sums, out, energies)
        return out[: end - begin]

    def log_energy(self, num_rows: int, floor: float) -> np.ndarray:
        """Log energies (num_rows,) of the frames transformed last; with `raw_energy`, before preemphasis and
        windowing."""
        return _log_energies(self._energies[:num_rows], floor)


class Spectrum:
    """See `spectrum_of`; computes with numpy, for any size."""

    def __init__(self, options: FrameOptions, weights: np.ndarray | None, power: bool, logarithms: bool):
        self.options, self.power, self.logarithms = options, power, logarithms
        self.window = window_function(options)
        # the power of a spectral line is the sum of the squares of its real and imaginary part: both get the
        # line's weight
        self.weights = np.repeat(weights, 2, axis=0) if power and weights is not None else weights
        self._padded = np.zeros((BLOCK_FRAMES, options.fft_size))
        self._centred = np.empty((BLOCK_FRAMES, options.window_size))

    def __call__(self, buffer: FrameBuffer, begin: int, end: int) -> np.ndarray:
        """As of `KernelSpectrum`."""
        sums = self._sums(buffer, begin, end)
        return np.log(np.maximum(sums, EPSILON)) if self.logarithms else sums

    def _sums(self, buffer: FrameBuffer, begin: int, end: int) -> np.ndarray:
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
        return _log_energies(np.einsum("ti,ti->t", frames, frames), floor)


def _log_energies(energies: np.ndarray, floor: float) -> np.ndarray:
    logs = np.log(np.maximum(energies, EPSILON))
    return np.maximum(logs, math.log(floor)) if floor > 0 else logs
