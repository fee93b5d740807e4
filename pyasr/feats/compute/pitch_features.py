r"""Voicing and pitch features, equal to Kaldi's `process-kaldi-pitch-feats`.

For a frame with correlation n and frequency f, in this order (features that are not requested are omitted):

    2 ((1.0001 - n)^0.15 - 1)                                         voicing: low if n is near 1
    2 (ln f - sum_s p_s ln f_s / sum_s p_s),   s = t - 75 .. t + 75   p the probability of voicing, below
    10 (sum_j j ln f_{t+j} / sum_j j^2 + noise),   j = -2 .. 2        ends repeated; Gaussian noise of
                                                                      deviation 0.005
    ln f

    p = 1 / (1 + exp(-r)),   m = |n|
    r = -5.2 + 5.4 exp(7.5 (m - 1)) + 4.8 m - 2 exp(-10 m) + 4.2 exp(20 (m - 1))
"""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.compute.pitch import PitchTracker
from pyasr.feats.deltas import delta_filters
from pyasr.feats.options import FrameOptions, PitchOptions, ProcessPitchOptions


def voicing_feature(nccf: np.ndarray) -> np.ndarray:
    """A nearly Gaussian function of the correlation."""
    return (1.0001 - np.clip(nccf, -1, 1)) ** 0.15 - 1


def voicing_probability(nccf: np.ndarray) -> np.ndarray:
    """p, fitted by the authors to the frequency of voiced frames at each correlation."""
    m = np.minimum(np.abs(nccf), 1)
    r = -5.2 + 5.4 * np.exp(7.5 * (m - 1)) + 4.8 * m - 2 * np.exp(-10 * m) + 4.2 * np.exp(20 * (m - 1))
    return 1 / (1 + np.exp(-r))


def moving_mean(values: np.ndarray, weights: np.ndarray, left: int, right: int) -> np.ndarray:
    """Weighted mean over the frames t - left .. t + right that exist."""
    sums = np.zeros((len(values) + 1, 2))
    np.cumsum(np.stack([weights * values, weights], axis=1), axis=0, out=sums[1:])
    frames = np.arange(len(values))
    window = sums[np.minimum(frames + right + 1, len(values))] - sums[np.maximum(frames - left, 0)]
    return window[:, 0] / window[:, 1]


def slope(values: np.ndarray, window: int) -> np.ndarray:
    """The slope of the regression line over 2 window + 1 frames; the end frames are repeated."""
    return np.correlate(np.pad(values, window, mode="edge"), delta_filters(1, window)[1], mode="valid")


def process_pitch(raw: np.ndarray, options: ProcessPitchOptions, random: np.random.Generator) -> np.ndarray:
    """Features, float32 (T + delay, options.dim), from the output of `PitchTracker` (T, 2); the first is
    repeated `delay` times."""
    if len(raw) == 0:
        return np.zeros((0, options.dim), np.float32)
    nccf, log_pitch = raw[:, 0].astype(np.float64), np.log(raw[:, 1].astype(np.float64))
    columns = []
    if options.add_pov_feature:
        columns.append(options.pov_scale * voicing_feature(nccf) + options.pov_offset)
    if options.add_normalized_log_pitch:
        mean = moving_mean(
            log_pitch,
            voicing_probability(nccf),
            options.normalization_left_context,
            options.normalization_right_context,
        )
        columns.append(options.pitch_scale * (log_pitch - mean))
    if options.add_delta_pitch:
        noise = options.delta_pitch_noise_stddev * random.standard_normal(len(raw))
        columns.append(options.delta_pitch_scale * (slope(log_pitch, options.delta_window) + noise))
    if options.add_raw_log_pitch:
        columns.append(log_pitch)
    frames = np.maximum(np.arange(len(raw) + options.delay) - options.delay, 0)
    return np.stack(columns, axis=1).astype(np.float32)[frames]


class PitchExtractor:
    """Computes voicing and pitch features of waveforms; `dim` columns."""

    def __init__(self, options: PitchOptions, frame: FrameOptions):
        if options.process.dim == 0:
            raise UserError(
                "--add-pitch without any of its features; set one of the --add-... options to true"
            )
        self.options, self.dim = options.process, options.process.dim
        self._tracker = PitchTracker(options.track, frame)

    def __call__(self, wave: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Features, float32 (T, dim), of float samples at any scale."""
        return process_pitch(self._tracker(wave), self.options, random)
