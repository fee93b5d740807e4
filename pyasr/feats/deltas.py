r"""Time derivatives and splicing of features.

The delta of order k is the convolution of the features with f_k, where f_0 = 1 and

    f_k = f_{k-1} * (-w, ..., 0, ..., w) / sum_{j=-w..w} j^2,        window w = 2

At the ends of an utterance, the first and the last frame are repeated, as in Kaldi's `add-deltas` and
`splice-feats`.
"""

from __future__ import annotations

import numpy as np

DELTA_WINDOW = 2


def delta_filters(order: int, window: int = DELTA_WINDOW) -> list[np.ndarray]:
    """f_0 .. f_order; f_k has 2 k window + 1 taps, the earliest frame first."""
    slope = np.arange(-window, window + 1) / np.sum(np.arange(-window, window + 1) ** 2)
    filters = [np.ones(1)]
    for _ in range(order):
        filters.append(np.convolve(filters[-1], slope))
    return [taps.astype(np.float32) for taps in filters]


def delta_matrix(order: int) -> np.ndarray:
    """f_0 .. f_order as rows, float32 (order + 1, 2 reach + 1), over the `reach` = 2 order frames before and
    after one."""
    reach = order * DELTA_WINDOW
    return np.stack([np.pad(taps, reach - len(taps) // 2) for taps in delta_filters(order)])


def add_deltas(features: np.ndarray, order: int = 2) -> np.ndarray:
    """(T, D) to (T, (order + 1) D): the features, their first derivatives, their second ..."""
    if order == 0 or len(features) == 0:
        return np.tile(features, (1, order + 1))
    num_frames, dim = features.shape
    reach = order * DELTA_WINDOW
    padded = _padded(features, reach, reach)
    out = np.empty((num_frames, order + 1, dim), np.float32)
    for k, taps in enumerate(delta_filters(order)):
        out[:, k] = _filtered(padded, taps, reach - len(taps) // 2, num_frames * dim, dim).reshape(
            num_frames, dim
        )
    return out.reshape(num_frames, -1)


def _padded(features: np.ndarray, left: int, right: int) -> np.ndarray:
    """The frames (T, D) as a flat array, with the first frame repeated `left` times before them and the last
    `right` times after them."""
    return np.concatenate([features[:1].repeat(left, 0), features, features[-1:].repeat(right, 0)]).reshape(
        -1
    )


def _filtered(padded: np.ndarray, taps: np.ndarray, first: int, size: int, dim: int) -> np.ndarray:
    """The sum of taps[i] times the `size` numbers from frame `first` + i of `padded` on, float32."""
    total, term = np.zeros(size, np.float32), np.empty(size, padded.dtype)
    for frame, tap in enumerate(taps, first):
        if tap:
            total += np.multiply(padded[frame * dim : frame * dim + size], tap, out=term)
    return total


def splice(features: np.ndarray, left: int, right: int) -> np.ndarray:
    """(T, D) to (T, (left + 1 + right) D): frames t - left .. t + right side by side."""
    width, dim = left + 1 + right, features.shape[1]
    if width == 1 or len(features) == 0:
        return np.tile(features, (1, width))
    return np.lib.stride_tricks.sliding_window_view(_padded(features, left, right), width * dim)[::dim].copy()
