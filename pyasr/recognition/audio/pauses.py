r"""Cut a long recording at pauses, so that no word is lost. Segments cover the recording without gaps or
overlaps.

With e(t) the energy of a window of 0.1 s around time t in decibel, and q(p) its quantiles over the recording,
a pause is a stretch where

    e(t) < q(0.05) + 0.3 (q(0.95) - q(0.05)),          and q(0.95) - q(0.05) >= 10 dB

for at least `min_pause_s`. A segment ends in the middle of the first pause after `min_segment_s`. If there is
none within `max_segment_s`, it ends at the quietest moment of the second half of that period.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

_STEP_S, _WINDOW_STEPS = 0.01, 10
# converted to float64 at once, because a recording of hours is far larger than its levels
_BLOCK_STEPS = 1000
_LOW, _HIGH, _SHARE, _MIN_RANGE_DB = 0.05, 0.95, 0.3, 10.0
_FLOOR = 1.0  # minimum mean square of samples at int16 scale: digital silence counts as rounding noise


@dataclass(frozen=True)
class CutOptions:
    """Options for cutting long recordings."""

    heading = "segments"

    max_segment_s: float = option(
        20.0, "maximum length of a segment in seconds; segments are decoded separately", minimum=1.0
    )
    min_segment_s: float = option(
        3.0, "minimum length of a segment in seconds, after which it ends at the next pause", minimum=0.0
    )
    min_pause_s: float = option(0.4, "minimum length of a pause in seconds", minimum=0.02)

    def check(self) -> None:
        """Raise UserError if the minimum length is not below the maximum."""
        if self.min_segment_s >= self.max_segment_s:
            raise UserError(
                f"--min-segment-s {self.min_segment_s:g} is not below --max-segment-s "
                f"{self.max_segment_s:g}; lower it"
            )


def cut_at_pauses(
    samples: np.ndarray, rate: float, options: CutOptions = CutOptions()
) -> list[tuple[int, int]]:
    """(first sample, one past the last) of each segment of a recording at int16 scale; a short recording is
    one segment."""
    options.check()
    step = max(round(_STEP_S * rate), 1)
    levels = _levels(samples, step)
    most, least = (
        max(int(seconds * rate / step), 1) for seconds in (options.max_segment_s, options.min_segment_s)
    )
    middles = np.zeros(0, np.int64)
    if len(levels) > most:
        middles = _pause_middles(levels, max(int(options.min_pause_s * rate / step), 1))
    cuts = [0]
    while len(levels) - cuts[-1] > most:
        cuts.append(_next_cut(levels, middles, cuts[-1], least, most))
    edges = [cut * step for cut in cuts] + [len(samples)]
    return list(zip(edges, edges[1:]))


def _levels(samples: np.ndarray, step: int) -> np.ndarray:
    """e(t) at every `step`-th sample, float64."""
    num = len(samples) // step
    whole = samples[: num * step].reshape(num, step)
    blocks = (whole[begin : begin + _BLOCK_STEPS] for begin in range(0, num, _BLOCK_STEPS))
    energies = np.concatenate(
        [np.zeros(0), *(np.square(block, dtype=np.float64).mean(1) for block in blocks)]
    )
    sums = np.concatenate([[0.0], np.cumsum(energies)])
    begin = np.clip(np.arange(num) - _WINDOW_STEPS // 2, 0, None)
    end = np.clip(np.arange(num) + _WINDOW_STEPS - _WINDOW_STEPS // 2, None, num)
    return 10 * np.log10((sums[end] - sums[begin]) / (end - begin) + _FLOOR)


def _pause_middles(levels: np.ndarray, least: int) -> np.ndarray:
    """The steps in the middle of pauses, ascending."""
    low, high = np.quantile(levels, [_LOW, _HIGH])
    quiet = (
        levels < low + _SHARE * (high - low) if high - low >= _MIN_RANGE_DB else np.zeros(len(levels), bool)
    )
    edges = np.flatnonzero(np.diff(np.concatenate([[0], quiet.astype(np.int8), [0]])))
    begins, ends = edges[::2], edges[1::2]
    return ((begins + ends) // 2)[ends - begins >= least]


def _next_cut(levels: np.ndarray, middles: np.ndarray, begin: int, least: int, most: int) -> int:
    """The end of a segment that begins at step `begin`."""
    allowed = middles[(middles > begin + least) & (middles <= begin + most)]
    if len(allowed):
        return int(allowed[0])
    first = begin + most // 2
    return first + int(np.argmin(levels[first : begin + most])) if most > 1 else begin + 1
