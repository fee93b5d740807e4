r"""Band-limited resampling by a windowed sinc, as in Kaldi's `LinearResample` and `ArbitraryResample`.

A signal x sampled at f is read at time t as

    y(t) = 1/f sum_n x[n] h(t - n/f)
    h(t) = 2 c sinc(2 c t) (1 + cos(2 pi c t / z)) / 2  for |t| < z / 2c,  else 0

with the cutoff c in Hz and z zeros of the sinc on either side of its peak. The signal is zero beyond its
ends.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError

_NUM_ZEROS = 32  # for `Resampler`; passes the band below 0.95 of the lower Nyquist frequency
_BAND = 0.95
_MAX_RATE_HZ = 768000
# limit for all relative positions of the samples of two rates; only unusual rates exceed it
_MAX_WEIGHTS = 1 << 22


def windowed_sinc(time_s: np.ndarray, cutoff_hz: float, num_zeros: int) -> np.ndarray:
    """h(t)."""
    window = np.where(
        np.abs(time_s) < num_zeros / (2 * cutoff_hz),
        0.5 + 0.5 * np.cos(2 * np.pi * cutoff_hz / num_zeros * time_s),
        0,
    )
    return 2 * cutoff_hz * np.sinc(2 * cutoff_hz * time_s) * window


def interpolation(
    times_s: np.ndarray, num_samples: int, rate_hz: float, cutoff_hz: float, num_zeros: int
) -> np.ndarray:
    """The matrix (num_samples, len(times_s)) such that `x @ matrix` reads signals of `num_samples` samples at
    these times."""
    distance = times_s[None, :] - np.arange(num_samples)[:, None] / rate_hz
    return windowed_sinc(distance, cutoff_hz, num_zeros) / rate_hz


def resample(signal: np.ndarray, rate_in: int, rate_out: int, cutoff_hz: float, num_zeros: int) -> np.ndarray:
    """The signal at the times 0, 1/rate_out, ... before its end, float32."""
    common = math.gcd(rate_in, rate_out)
    # samples per period after which both grids coincide again
    step_in, step_out = rate_in // common, rate_out // common
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
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(taps))[nearest::step_in][:num_periods]
        out[:, phase] = windows @ weights.astype(np.float32)
    return out.reshape(-1)[:num_out]


class Resampler:
    """Resamples a recording as it arrives; the result is bit-identical for any division into parts.

    In addition to `resample`, it has a state, and adds sums in the same order for any division into parts.

    Raises UserError for a `rate_in` that is not a whole number of Hz, is out of bounds, or would need
    millions of weights.
    """

    def __init__(self, rate_in: float, rate_out: int):
        if not 0 < rate_in <= _MAX_RATE_HZ or rate_in != round(rate_in):
            raise UserError(
                f"audio of {rate_in} Hz; give audio of a whole number of Hz, at most {_MAX_RATE_HZ}"
            )
        rate_in = int(rate_in)
        common = math.gcd(rate_in, rate_out)
        self._step_in, self._step_out = rate_in // common, rate_out // common
        cutoff_hz = _BAND * min(rate_in, rate_out) / 2
        self._reach = math.floor(rate_in * _NUM_ZEROS / (2 * cutoff_hz))
        if self._step_out * 2 * (self._reach + 1) > _MAX_WEIGHTS:
            message = f"audio of {rate_in} Hz, whose common divisor with {rate_out} Hz is too small"
            raise UserError(f"{message}; convert it first, for example with 'sox FILE -r {rate_out} NEW.wav'")
        phases = np.arange(self._step_out)[:, None]
        distance_s = (
            phases / rate_out
            - (phases * self._step_in // self._step_out + np.arange(-self._reach, self._reach + 2)) / rate_in
        )
        self._weights = (windowed_sinc(distance_s, cutoff_hz, _NUM_ZEROS) / rate_in).astype(np.float32)
        # buffered samples, and the index of the first of them
        self._kept, self._first = np.zeros(self._reach, np.float32), -self._reach
        self._num_done = 0

    def __call__(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        """The samples of the new signal, float32, that are known now; with the `last` part, all of them."""
        if self._step_in == self._step_out:
            return samples.astype(np.float32, copy=False)
        self._kept = np.concatenate(
            [
                self._kept,
                samples.astype(np.float32, copy=False),
                np.zeros(last * (self._reach + 2), np.float32),
            ]
        )
        # outputs before this index have all their input
        num_known = self._first + len(self._kept) - self._reach - 1
        if last:
            num_known -= 1
        end = max(-(-num_known * self._step_out // self._step_in), self._num_done)
        out = _interpolated(
            self._kept, self._weights, self._step_in, self._num_done, end, self._first + self._reach
        )
        drop = max(end * self._step_in // self._step_out - self._reach - self._first, 0)
        self._kept, self._first, self._num_done = self._kept[drop:], self._first + drop, end
        return out


@njit(nogil=True, cache=True)
def _interpolated(kept, weights, step_in, begin, end, first):
    """Samples begin ... end - 1 of the new signal; sample n of the old one is at the middle of the taps that
    begin at kept[n - first]."""
    num_phases, num_taps = weights.shape
    out = np.empty(end - begin, np.float32)
    for i in range(begin, end):
        row, at = weights[i % num_phases], i * step_in // num_phases - first
        total = np.float32(0)
        for k in range(num_taps):
            total += kept[at + k] * row[k]
        out[i - begin] = total
    return out
