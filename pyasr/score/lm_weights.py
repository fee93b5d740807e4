"""The range of LM weights that scoring tries. It grows while the best weight is at one of its ends.

The first range is that of Kaldi, 7 to 17, which suits GMMs. The best weight of a network can be as high as
30. An end that the user gives is fixed. Otherwise the lower end can move to 1, the upper end to 30, then to
50, then to 100. The range stops growing if this does not reduce the number of errors, or if there are no
errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyasr.base.errors import UserError
from pyasr.score.wer import Score

FIRST = (7, 17)
_MIN_WEIGHT, _UPPER_ENDS = 1, (30, 50, 100)


def first_range(least: int | None, greatest: int | None) -> tuple[int, int]:
    """The first range, with the ends that the user gave, or None. Raises UserError if the range is empty."""
    if least is not None and greatest is not None and least > greatest:
        raise UserError(
            f"--min-lmwt {least} is greater than --max-lmwt {greatest}; lower the first or raise the second"
        )
    return (
        min(FIRST[0], greatest or FIRST[0]) if least is None else least,
        max(FIRST[1], least or FIRST[1]) if greatest is None else greatest,
    )


class LmWeights:
    """The range for one decode directory.

    least, greatest  the ends that the user gave, or None
    needed           the weight chosen on another set; the range includes it, unless the user gave the ends
    given            [least, greatest]
    first            the weights of the first range
    low, high        the current ends
    """

    def __init__(self, least: int | None, greatest: int | None, needed: int | None = None):
        self.given, self._moves_down, self._moves_up = [least, greatest], least is None, greatest is None
        low, high = first_range(least, greatest)
        self.low = min(low, needed or low) if self._moves_down else low
        self.high = max(high, needed or high) if self._moves_up else high
        self.first = range(self.low, self.high + 1)
        self._high_before: int | None = None

    def further(self, scores: Mapping[tuple[int, float], Score]) -> list[int]:
        """The weights to try next, given all scores so far. The list is empty if the best weight is inside
        the range, or if the last growth did not reduce the errors."""
        errors: dict[int, int] = {}
        for (weight, _), score in scores.items():
            errors[weight] = min(score.total.errors, errors.get(weight, score.total.errors))
        best = min(errors.values(), default=0)
        down = best > 0 and self._moves_down and self.low > _MIN_WEIGHT and errors[self.low] == best
        up = best > 0 and self._grows_up(errors, best)
        return (self._lower() if down else []) + (self._higher() if up else [])

    @property
    def record(self) -> dict:
        """The range as JSON values, which `misfit` of a later range takes."""
        return {"tried": [self.low, self.high], "given": self.given}

    def misfit(self, record: Mapping, best: int, errors: int) -> str:
        """Why the scores of an earlier range cannot be kept for this range; '' if they can be kept.

        record  `record` of the earlier range
        best    the best weight of the earlier range, with `errors` errors

        The scores cannot be kept if some are beyond an end that is fixed now. Nor can they be kept if the
        best weight is at an end that was fixed in the earlier range and can move now.
        """
        (low, high), given = record["tried"], record["given"]
        if low < self.low and not self._moves_down or high > self.high and not self._moves_up:
            return f"it has scores of LM weights {low} to {high}"
        is_low = best == low > _MIN_WEIGHT and self._moves_down and given[0] is not None
        is_high = best == high < _UPPER_ENDS[-1] and self._moves_up and given[1] is not None
        return (
            f"its best LM weight {best} is at a fixed end of its range"
            if errors and (is_low or is_high)
            else ""
        )

    def remedy(self, best: int) -> str:
        """Advice if the best weight is at an end that the user gave, or is the largest weight that is tried;
        otherwise ''."""
        if best == self.low > _MIN_WEIGHT and not self._moves_down:
            return "lower --min-lmwt, or omit it"
        if best == self.high and not self._moves_up:
            return "raise --max-lmwt, or omit it"
        return "raise --max-lmwt" if best == self.high >= _UPPER_ENDS[-1] else ""

    def _grows_up(self, errors: dict[int, int], best: int) -> bool:
        if not self._moves_up or self.high >= _UPPER_ENDS[-1] or errors[self.high] > best:
            return False
        return self._high_before is None or best < min(
            found for weight, found in errors.items() if weight <= self._high_before
        )

    def _lower(self) -> list[int]:
        added = list(range(_MIN_WEIGHT, self.low))
        self.low = _MIN_WEIGHT
        return added

    def _higher(self) -> list[int]:
        before, self.high = self.high, next(end for end in _UPPER_ENDS if end > self.high)
        self._high_before = before
        return list(range(before + 1, self.high + 1))
