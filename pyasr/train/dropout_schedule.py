"""Dropout schedules in Kaldi's notation.

    0,0@0.20,0.5@0.50,0

is 0 for the first fifth of the training, rises to 0.5 in the middle, and falls to 0 at the end, linearly
between these points. The first dropout share applies to the beginning of the training, the last to its end. A
share between them is followed by @ and the completed part of the training, from 0 to 1; without @ it applies
to the middle.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.base.errors import UserError
from pyasr.nn.network_options import MAX_SPREAD


class DropoutSchedule:
    """The schedule in `text`. Raises UserError if the text is not valid."""

    def __init__(self, text: str):
        words = text.split(",")
        between = [word if "@" in word else f"{word}@0.5" for word in words[1:-1]]
        self._shares, self._places = zip(*map(_numbers, (f"{words[0]}@0", *between, f"{words[-1]}@1")))
        if len(words) < 2 or not all(0 <= share <= MAX_SPREAD for share in self._shares):
            example = "0,0@0.20,0.5@0.50,0"
            raise UserError(
                f"--dropout-schedule '{text}': give two or more shares from 0 to {MAX_SPREAD}, such as "
                f"{example}"
            )
        if not all(before <= after for before, after in zip(self._places, self._places[1:])):
            raise UserError(
                f"--dropout-schedule '{text}': times do not ascend; after each @ give a number from 0 to 1, "
                "in ascending order"
            )

    def __call__(self, done: float) -> float:
        """The dropout share when the part `done` of the training, 0 to 1, is completed."""
        return float(np.interp(done, self._places, self._shares))


def _numbers(point: str) -> tuple[float, float]:
    """The numbers of SHARE@PLACE; NaN if one of them is not a number."""
    share, _, place = point.partition("@")
    try:
        return float(share), float(place)
    except ValueError:
        return math.nan, math.nan
