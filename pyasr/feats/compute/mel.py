r"""The mel scale, its triangular filters, and the warping of frequencies that compensates for the length of a
speaker's vocal tract.

    mel(h) = 1127 ln(1 + h / 700)

A warp factor a maps frequency f of the filters to F(f) of the spectrum, piecewise linear through

    (low, low)   (l, l / a)   (h, h / a)   (high, high)
    l = vtln_low max(1, a),   h = vtln_high min(1, a)

so that the edges of the band stay fixed and factors below 1 read the spectrum at higher frequencies (Kaldi's
`--vtln-low`, `--vtln-high`).
"""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.options import FrameOptions, MelOptions

EPSILON = float(np.finfo(np.float32).eps)  # floor of energies before the logarithm


def mel_scale(hertz):
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)


def inverse_mel_scale(mel):
    return 700.0 * np.expm1(np.asarray(mel) / 1127.0)


def warped_hz(
    hertz: np.ndarray, factor: float, band: tuple[float, float], knees: tuple[float, float]
) -> np.ndarray:
    """F of frequencies within the `band` (low, high); `knees` are (vtln_low, vtln_high)."""
    low, high = knees[0] * max(1, factor), knees[1] * min(1, factor)
    return np.interp(hertz, [band[0], low, high, band[1]], [band[0], low / factor, high / factor, band[1]])


def band_hz(mel: MelOptions, frame: FrameOptions) -> tuple[float, float]:
    """The lower edge of the first filter and the upper edge of the last. Raises UserError if they do not form
    a band."""
    nyquist = frame.sample_frequency / 2
    high = _from_nyquist(mel.high_freq, nyquist)
    if not 0 <= mel.low_freq < high <= nyquist:
        found = (
            f"--low-freq {mel.low_freq:g} and --high-freq {mel.high_freq:g} do not form a band below "
            f"{nyquist:g} Hz"
        )
        raise UserError(f"{found}; correct the configuration")
    return mel.low_freq, high


def _from_nyquist(hertz: float, nyquist: float) -> float:
    return hertz if hertz > 0 else nyquist + hertz


def filter_edges(mel: MelOptions, frame: FrameOptions, warp: float = 1.0) -> np.ndarray:
    """Mel values (num_mel_bins + 2,) where the filters begin, peak and end: filter b has elements
    b, b + 1, b + 2."""
    band = band_hz(mel, frame)
    edges = np.linspace(mel_scale(band[0]), mel_scale(band[1]), mel.num_mel_bins + 2)
    if warp == 1:
        return edges
    knees = mel.vtln_low, _from_nyquist(mel.vtln_high, frame.sample_frequency / 2)
    if (
        not band[0] < knees[0] * max(1, warp) < knees[1] * min(1, warp) < band[1]
        or knees[0] <= band[0]
        or knees[1] >= band[1]
    ):
        found = (
            f"--vtln-low {knees[0]:g} and --vtln-high {knees[1]:g} Hz are not within the band of "
            f"{band[0]:g} to {band[1]:g} Hz"
        )
        raise UserError(f"{found} for a warp factor of {warp:g}; correct the configuration")
    return mel_scale(warped_hz(inverse_mel_scale(edges), warp, band, knees))


def mel_filters(mel: MelOptions, frame: FrameOptions, warp: float = 1.0) -> np.ndarray:
    """Weights (fft_size / 2 + 1, num_mel_bins), float64, of the triangular filters; the last spectral line
    has weight 0, as in Kaldi."""
    if mel.num_mel_bins > frame.fft_size:  # a line is within at most two filters
        raise _without_a_line(mel, frame)
    edges = filter_edges(mel, frame, warp)
    lines = mel_scale(np.arange(frame.fft_size // 2) * frame.sample_frequency / frame.fft_size)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    weights = np.clip(
        np.minimum((lines - left) / (centre - left), (right - lines) / (right - centre)), 0, None
    )
    if not weights.any(axis=0).all():
        raise _without_a_line(mel, frame)
    return np.vstack([weights, np.zeros(mel.num_mel_bins)])


def _without_a_line(mel: MelOptions, frame: FrameOptions) -> UserError:
    return UserError(
        f"--num-mel-bins {mel.num_mel_bins}: some filters cover no line of the {frame.fft_size}-point "
        "spectrum; use fewer"
    )
