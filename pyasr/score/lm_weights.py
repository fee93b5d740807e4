"""Which LM weights are tried: a range that grows by itself while the best weight is at one of its ends.

It begins with Kaldi's 7 ... 17, where GMMs have their best weight; networks have it up to about 30. An end that the user gives stays. The
lower end goes down to 1, the upper one to 30, 50 and 100. It goes on only as long as that has lowered the errors, and not from 0 errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyasr.base.errors import UserError
from pyasr.score.wer import Score

FIRST = (7, 17)
_LEAST, _UPPER_ENDS = 1, (30, 50, 100)


def first_range(least: int | None, greatest: int | None) -> tuple[int, int]:
    """The range to begin with, where an end that is None was not given. Raises UserError where there is no number in it."""
    if least is not None and greatest is not None and least > greatest:
        raise UserError(f"--min-lmwt {least} is greater than --max-lmwt {greatest}; lower the first or raise the second")
    return (min(FIRST[0], greatest or FIRST[0]) if least is None else least,
            max(FIRST[1], least or FIRST[1]) if greatest is None else greatest)  # fmt: skip


class LmWeights:
    """The range for one decode directory.

    least, greatest  the ends that the user gave, else None
    needed           a weight that the range has to hold, if its ends may move: the one that another set has chosen
    first            weights to begin with
    low, high        the ends by now
    """

    def __init__(self, least: int | None, greatest: int | None, needed: int | None = None):
        self._moves_down, self._moves_up = least is None, greatest is None
        low, high = first_range(least, greatest)
        self.low = min(low, needed or low) if self._moves_down else low
        self.high = max(high, needed or high) if self._moves_up else high
        self.first, self._high_before = range(self.low, self.high + 1), None

    def further(self, scores: Mapping[tuple[int, float], Score]) -> list[int]:
        """The weights to be tried next, by the scores of all that were; none where the best one is inside, or nothing better follows."""
        errors: dict[int, int] = {}
        for (weight, _), score in scores.items():
            errors[weight] = min(score.total.errors, errors.get(weight, score.total.errors))
        best = min(errors.values(), default=0)
        down = best > 0 and self._moves_down and self.low > _LEAST and errors[self.low] == best
        up = best > 0 and self._grows_up(errors, best)
        return (self._lower() if down else []) + (self._higher() if up else [])

    def remedy(self, best: int) -> str:
        """What to do where the best weight is an end that the user gave, or the greatest that is tried; else nothing."""
        if best == self.low > _LEAST and not self._moves_down:
            return "lower --min-lmwt, or leave it out"
        if best == self.high and not self._moves_up:
            return "raise --max-lmwt, or leave it out"
        return "raise --max-lmwt" if best == self.high >= _UPPER_ENDS[-1] else ""

    def _grows_up(self, errors: dict[int, int], best: int) -> bool:
        if not self._moves_up or self.high >= _UPPER_ENDS[-1] or errors[self.high] > best:
            return False
        return self._high_before is None or best < min(found for weight, found in errors.items() if weight <= self._high_before)

    def _lower(self) -> list[int]:
        added = list(range(_LEAST, self.low))
        self.low = _LEAST
        return added

    def _higher(self) -> list[int]:
        self._high_before, self.high = self.high, next(end for end in _UPPER_ENDS if end > self.high)
        return list(range(self._high_before + 1, self.high + 1))
