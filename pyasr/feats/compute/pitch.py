r"""Pitch tracking: for each frame, the normalised cross-correlation at the chosen lag, and the fundamental
frequency.

Reference: P. Ghahremani, B. BabaAli, D. Povey, K. Riedhammer, J. Trmal, S. Khudanpur, "A pitch extraction
algorithm tuned for automatic speech recognition", ICASSP 2014; equivalent to Kaldi's
`compute-kaldi-pitch-feats` on whole utterances. The signal is resampled to 4 kHz. With the window w_t of N
samples from the beginning of frame t, minus its mean, and w_t,l the N samples l later (minus the same mean),

    phi(t, l) = <w_t, w_t,l> / sqrt(|w_t|^2 |w_t,l|^2 + ballast),      ballast = B (N var)^2

with var the variance of the whole signal, is computed at all integer lags l and interpolated at the lags
L_i = (1 + d)^i / max_f0 up to 1 / min_f0. The pitch is the path i(t) of minimal

    sum_t 1 - phi(t, L_i(t)) (1 - soft_min_f0 L_i(t)) + p ln(1 + d)^2 (i(t) - i(t-1))^2      (eqs. 4-6)

The ballast keeps the path smooth in quiet parts; the output correlation is computed without it. Kaldi's var
omits the last half millisecond for all but the last frames, and its float32 may choose another path of the
same cost in silence or noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.feats.compute.resample import interpolation, resample
from pyasr.feats.options import FrameOptions, TrackOptions

BLOCK_FRAMES = 512


class PitchTracker:
    """Pitch of waveforms: float arrays of `frame.sample_frequency` samples per second, at any scale.

    Frames begin at the same times as those of other features with the same `frame` options; there may be one
    fewer or more.
    """

    def __init__(self, options: TrackOptions, frame: FrameOptions):
        _check(options, frame)
        self.options, self.frame = options, frame
        rate = options.resample_frequency
        self.window = int(rate * frame.frame_length / 1000)
        self.shift = int(rate * frame.frame_shift / 1000)
        reach_s = options.upsample_filter_width / (2 * rate)
        self.first_lag = int(np.ceil(rate * (1 / options.max_f0 - reach_s)))
        self.last_lag = int(np.floor(rate * (1 / options.min_f0 + reach_s)))
        num_states = 1 + int(np.log(options.max_f0 / options.min_f0) / np.log1p(options.delta_pitch) + 1e-6)
        self.lags_s = (1 + options.delta_pitch) ** np.arange(num_states) / options.max_f0
        num_lags = self.last_lag + 1 - self.first_lag
        self._reading = interpolation(
            self.lags_s - self.first_lag / rate, num_lags, rate, rate / 2, options.upsample_filter_width
        )

    def __call__(self, wave: np.ndarray) -> np.ndarray:
        """Columns NCCF and pitch in Hz, float32 (num_frames, 2)."""
        options = self.options
        signal = resample(
            wave,
            int(self.frame.sample_frequency),
            options.resample_frequency,
            options.lowpass_cutoff,
            options.lowpass_filter_width,
        )
        num_frames = self.num_frames(len(signal))
        if num_frames == 0:
            return np.zeros((0, 2), np.float32)
        padded, begins = self._frames(signal, num_frames)
        ballast = options.nccf_ballast * (self.window * np.var(signal, dtype=np.float64)) ** 2
        factor = options.penalty_factor * np.log1p(options.delta_pitch) ** 2
        states = best_path(self._costs(padded, begins, ballast), factor)
        nccf = _nccf_at(padded, begins, self.window, self.first_lag, self._reading.T.copy(), states)
        return np.stack([nccf, 1 / self.lags_s[states]], axis=1).astype(np.float32)

    def num_frames(self, num_samples: int) -> int:
        """Number of frames of a resampled signal."""
        if num_samples < self.window:
            return 0
        return (
            1 + (num_samples - self.window) // self.shift
            if self.frame.snip_edges
            else int(num_samples / self.shift + 0.5)
        )

    def _frames(self, signal: np.ndarray, num_frames: int) -> tuple[np.ndarray, np.ndarray]:
        """The signal padded with zeros, and the first samples of the frames in it."""
        length = self.window + self.last_lag
        first = 0 if self.frame.snip_edges else self.shift // 2 - length // 2
        padded = np.zeros(max(-first, 0) + len(signal) + length + self.shift, np.float32)
        padded[max(-first, 0) :][: len(signal)] = signal
        return padded, max(first, 0) + self.shift * np.arange(num_frames)

    def _costs(self, padded: np.ndarray, begins: np.ndarray, ballast: float) -> Iterator[np.ndarray]:
        """Blocks of 1 - phi(t, L_i) (1 - soft_min_f0 L_i), float32 (block, num_states)."""
        weights = (self._reading * (1 - self.options.soft_min_f0 * self.lags_s)).astype(np.float32)
        for first in range(0, len(begins), BLOCK_FRAMES):
            block = begins[first : first + BLOCK_FRAMES]
            nccf = np.empty((len(block), self.last_lag + 1 - self.first_lag), np.float32)
            _nccf(padded, block, self.window, self.first_lag, ballast, nccf)
            yield 1 - nccf @ weights


def _check(options: TrackOptions, frame: FrameOptions) -> None:
    """Raise UserError for options with an empty search range, and for a sampling rate that is too low for the
    pitch."""
    rate, cutoff = frame.sample_frequency, options.lowpass_cutoff
    if rate != int(rate):
        raise UserError(
            f"--sample-frequency {rate:g}: pitch needs a whole number of samples per second; resample the "
            "audio"
        )
    if 2 * cutoff > min(rate, options.resample_frequency):
        found = (
            f"--lowpass-cutoff {cutoff:g} needs more than {min(rate, options.resample_frequency):g} "
            "samples per second"
        )
        raise UserError(f"{found}; lower it, or raise --resample-frequency")
    if not 0 < options.soft_min_f0 <= options.min_f0 < options.max_f0 <= cutoff:
        found = (
            f"--soft-min-f0 {options.soft_min_f0:g}, --min-f0 {options.min_f0:g}, --max-f0 {options.max_f0:g}"
        )
        raise UserError(
            f"{found}, --lowpass-cutoff {cutoff:g}: these must increase in this order; correct them"
        )
    if (
        frame.window_shift * options.resample_frequency
        != int(options.resample_frequency * frame.frame_shift / 1000) * rate
    ):
        found = (
            f"--frame-shift {frame.frame_shift:g} ms is not a whole number of samples at {rate:g} and "
            f"{options.resample_frequency} Hz"
        )
        raise UserError(f"{found}; pitch needs that: choose another shift, or resample the audio")
    if options.resample_frequency <= options.max_f0 * options.upsample_filter_width / 2:
        raise UserError(
            f"--max-f0 {options.max_f0:g} is too high for --resample-frequency "
            f"{options.resample_frequency}; raise the latter"
        )


def best_path(costs: Iterator[np.ndarray], factor: float) -> np.ndarray:
    """States (num_frames,) of minimal cost sum_t costs[t, i(t)] + factor (i(t) - i(t-1))^2, from blocks
    (num_frames, num_states) of costs.

    Back-pointers never cross, so all active paths agree on the frames before the point where the lowest and
    the highest of them meet. These frames are settled, and their back-pointers can be dropped.
    """
    states = []
    forward, pending = np.zeros(0), np.zeros((0, 0), np.int16)
    for cost in costs:
        if not len(forward):
            forward, pending = np.zeros(cost.shape[1]), np.empty((0, cost.shape[1]), np.int16)
        back = np.empty(cost.shape, np.int16)
        _advance(cost, factor, forward, back)
        pending = np.concatenate([pending, back])
        settled = _settled(pending)
        states.append(settled)
        pending = pending[len(settled) :]
    states.append(_trace(pending, int(np.argmin(forward))))
    return np.concatenate(states)


@njit(nogil=True, cache=True)
def _advance(cost, factor, forward, back):
    """Viterbi over a block: `forward` (num_states,) is updated from the costs before the block to those at
    its end, minus their minimum."""
    num_states = len(forward)
    envelope, begins, reached = np.empty(num_states, np.int64), np.empty(num_states), np.empty(num_states)
    for t in range(len(cost)):
        _best_previous(forward, factor, envelope, begins, reached, back[t])
        least = np.inf
        for i in range(num_states):
            forward[i] = reached[i] + cost[t, i]
            least = min(least, forward[i])
        forward -= least


@njit(nogil=True, cache=True)
def _best_previous(cost, factor, envelope, begins, reached, back):
    """reached[i] = min_j cost[j] + factor (i - j)^2 and back[i] = that j, in linear time.

    The lower envelope of parabolas: P. Felzenszwalb, D. Huttenlocher, "Distance transforms of sampled
    functions", Theory of Computing 8 (2012), section 2.1. `envelope` contains the parabolas that are lowest
    somewhere, `begins` the start of the range of each.
    """
    envelope[0], begins[0], top = 0, -np.inf, 0
    for j in range(1, len(cost)):
        while True:
            k = envelope[top]
            crossing = ((cost[j] - cost[k]) / factor + (j * j - k * k)) / (2 * (j - k))
            if crossing > begins[top]:
                break
            top -= 1
        top += 1
        envelope[top], begins[top] = j, crossing
    place = 0
    for i in range(len(cost)):
        while place < top and begins[place + 1] < i:
            place += 1
        j = envelope[place]
        reached[i], back[i] = cost[j] + factor * (i - j) ** 2, j


@njit(nogil=True, cache=True)
def _settled(back):
    """States of the frames before the last on which the paths from all final states agree; empty if there are
    none."""
    low, high = 0, back.shape[1] - 1
    for t in range(len(back) - 1, 0, -1):
        low, high = back[t, low], back[t, high]
        if low == high:
            return _trace(back[:t], low)
    return np.empty(0, np.int64)


@njit(nogil=True, cache=True)
def _trace(back, final):
    """The path that ends in state `final`."""
    states = np.empty(len(back), np.int64)
    for t in range(len(back) - 1, -1, -1):
        states[t] = final
        final = back[t, final]
    return states


@njit(nogil=True, cache=True)
def _nccf(signal, begins, window, first_lag, ballast, out):
    """out[t, l] = phi(t, first_lag + l)."""
    frame = np.empty(window + first_lag + out.shape[1], np.float32)
    for t, begin in enumerate(begins):
        energy = _centre(signal[begin : begin + len(frame)], window, frame)
        for lag in range(out.shape[1]):
            out[t, lag] = _correlation(frame, window, first_lag + lag, energy, ballast)


@njit(nogil=True, cache=True)
def _nccf_at(signal, begins, window, first_lag, reading, states):
    """phi without ballast at the lags of `states`; reading[i] are the weights of the integer lags for state
    i."""
    frame, out = np.empty(window + first_lag + reading.shape[1], np.float32), np.zeros(len(begins))
    for t, begin in enumerate(begins):
        energy = _centre(signal[begin : begin + len(frame)], window, frame)
        for lag, weight in enumerate(reading[states[t]]):
            if weight != 0:
                out[t] += weight * _correlation(frame, window, first_lag + lag, energy, 0.0)
    return out


@njit(nogil=True, cache=True)
def _centre(samples, window, out):
    """The samples minus the mean of the first `window`, and the energy of these; exactly zero if they are
    constant."""
    mean = 0.0
    for n in range(window):
        mean += samples[n]
    mean /= window
    energy = 0.0
    for n in range(len(samples)):
        out[n] = samples[n] - mean
        energy += out[n] * out[n] if n < window else 0.0
    return energy


@njit(nogil=True, cache=True, fastmath=True)
def _correlation(frame, window, lag, energy, ballast):
    """<w_t, w_t,l> / sqrt(|w_t|^2 |w_t,l|^2 + ballast), zero for silence."""
    inner, norm = np.float32(0), np.float32(0)
    for n in range(window):
        inner += frame[n] * frame[n + lag]
        norm += frame[n + lag] * frame[n + lag]
    square = energy * norm + ballast
    return inner / np.sqrt(square) if square > 0 else 0.0
