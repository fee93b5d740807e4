r"""Cepstral mean and variance normalisation: per speaker or utterance with Kaldi's statistics, or over a
sliding window.

Statistics of D-dimensional features are a float64 matrix of 2 rows and D + 1 columns:

    row 0:  sum_t x_t[0..D-1],  number of frames
    row 1:  sum_t x_t[0..D-1]^2,  0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from pyasr.base.cli.option_uses import if_is, unless_set
from pyasr.base.cli.options import option

VARIANCE_FLOOR = 1e-20
SLIDING_VARIANCE_FLOOR = 1e-10


@dataclass(frozen=True)
class SlidingOptions:
    """The window of sliding normalisation, with the names and defaults of Kaldi's `apply-cmvn-sliding`."""

    heading = "input"

    cmn_window: int = option(
        600, "length of the window of sliding normalisation, frames", minimum=1, only=if_is("cmvn", "sliding")
    )
    min_cmn_window: int = option(
        100,
        "minimum length of the window at the beginning of an utterance, frames",
        minimum=1,
        only=if_is("cmvn", "sliding") + unless_set("center"),
        rare=True,
    )
    center: bool = option(
        False,
        "centre the window on the frame; false: the window ends at the frame",
        only=if_is("cmvn", "sliding"),
        rare=True,
    )


def cmvn_stats(features: np.ndarray) -> np.ndarray:
    """Statistics (2, D + 1) of one utterance (T, D)."""
    features = features.astype(np.float64)
    stats = np.zeros((2, features.shape[1] + 1))
    stats[0, :-1] = features.sum(0)
    stats[1, :-1] = np.square(features).sum(0)
    stats[0, -1] = len(features)
    return stats


@overload
def normaliser(stats: np.ndarray, norm_vars: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...


@overload
def normaliser(stats: np.ndarray, norm_vars: bool) -> tuple[np.ndarray, np.ndarray | None]: ...


def normaliser(stats: np.ndarray, norm_vars: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """(mean, inverse standard deviation or None), float32 (D,), such that (x - mean) * inverse is normalised.

    For statistics (T, 2, D + 1), one per frame, both are (T, D).
    """
    count = np.maximum(stats[..., 0, -1:], 1.0)
    mean = stats[..., 0, :-1] / count
    if not norm_vars:
        return mean.astype(np.float32), None
    variance = np.maximum(stats[..., 1, :-1] / count - mean**2, VARIANCE_FLOOR)
    return mean.astype(np.float32), (variance**-0.5).astype(np.float32)


def apply_cmvn(features: np.ndarray, mean: np.ndarray, inverse_std: np.ndarray | None) -> np.ndarray:
    """Normalised features, float32 (T, D)."""
    centred = features - mean
    return centred if inverse_std is None else centred * inverse_std


def sliding_windows(num_frames: int, options: SlidingOptions) -> tuple[np.ndarray, np.ndarray]:
    """First frame, and one past the last frame, of the window of every frame, as in Kaldi.

    With `center`, the window has `cmn_window` frames from t - cmn_window / 2 on, and is shifted to fit into
    the utterance. Otherwise it contains the `cmn_window` frames before t and t itself, and at the beginning
    of the utterance at least `min_cmn_window` frames.
    """
    frames = np.arange(num_frames)
    if options.center:
        begin = np.maximum(frames - options.cmn_window // 2, 0)
        end = begin + options.cmn_window
    else:
        begin = np.maximum(frames - options.cmn_window, 0)
        end = np.maximum(frames + 1, options.min_cmn_window)
    excess = np.maximum(end - num_frames, 0)
    return np.maximum(begin - excess, 0), end - excess


def sliding_cmvn(features: np.ndarray, options: SlidingOptions, norm_vars: bool) -> np.ndarray:
    """Each frame of (T, D) minus the mean of its window, with `norm_vars` divided by its standard deviation:
    float32 (T, D)."""
    begin, end = sliding_windows(len(features), options)
    count = (end - begin)[:, None]
    centre = features.mean(0, dtype=np.float64)  # keeps the sums small
    values = features - centre
    mean = _window_sums(values, begin, end) / count
    if not norm_vars:
        return (values - mean).astype(np.float32)
    variance = np.maximum(_window_sums(values**2, begin, end) / count - mean**2, SLIDING_VARIANCE_FLOOR)
    return np.where(count > 1, (values - mean) / np.sqrt(variance), 0).astype(np.float32)


def _window_sums(values: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    return sums[end] - sums[begin]
