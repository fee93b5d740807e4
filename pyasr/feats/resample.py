r"""Band-limited resampling by a windowed sinc, as Kaldi's `LinearResample` and `ArbitraryResample` do it.

A signal x sampled at f is read at time t as

    y(t) = 1/f sum_n x[n] h(t - n/f),       h(t) = 2 c sinc(2 c t) (1 + cos(2 pi c t / z)) / 2  for |t| < z / 2c,  else 0

with the cutoff c in Hz and z zeros of the sinc on either side of its peak. Outside its ends the signal is zero.
"""

from __future__ import annotations

import math

import numpy as np


def windowed_sinc(time_s: np.ndarray, cutoff_hz: float, num_zeros: int) -> np.ndarray:
    """h(t)."""
    window = np.where(np.abs(time_s) < num_zeros / (2 * cutoff_hz), 0.5 + 0.5 * np.cos(2 * np.pi * cutoff_hz / num_zeros * time_s), 0)
    return 2 * cutoff_hz * np.sinc(2 * cutoff_hz * time_s) * window


def interpolation(times_s: np.ndarray, num_samples: int, rate_hz: float, cutoff_hz: float, num_zeros: int) -> np.ndarray:
    """The matrix (num_samples, len(times_s)) such that `x @ matrix` reads signals of `num_samples` samples at these times."""
    distance = times_s[None, :] - np.arange(num_samples)[:, None] / rate_hz
    return windowed_sinc(distance, cutoff_hz, num_zeros) / rate_hz


def resample(signal: np.ndarray, rate_in: int, rate_out: int, cutoff_hz: float, num_zeros: int) -> np.ndarray:
    """The signal at the times 0, 1/rate_out, ... before its end, float32."""
    common = math.gcd(rate_in, rate_out)
    step_in, step_out = rate_in // common, rate_out // common  # samples of a period after which both grids meet again
    num_out = -(-len(signal) * step_out // step_in)
    reach = math.floor(rate_in * num_zeros / (2 * cutoff_hz))
    num_periods = -(-num_out // step_out)
    padded = np.zeros(reach + num_periods * step_in + step_in + reach, np.float32)
    padded[reach : reach + len(signal)] = signal
    out = np.empty((num_periods, step_out), np.float32)
    taps = np.arange(-reach, reach + 2)
    for phase in range(step_out):
        nearest = phase * step_in // step_out
        weights = windowed_sinc(phase / rate_out - (nearest + taps) / rate_in, cutoff_hz, num_zeros) / rate_in
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(taps))[nearest :: step_in][:num_periods]
        out[:, phase] = windows @ weights.astype(np.float32)
    return out.reshape(-1)[:num_out]
