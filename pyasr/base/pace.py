"""When a program that goes on for long tells how far it is: after 20 s, then each time after half as long again, at least every ten
minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S = 20.0
_GROWTH, _MOST_S = 1.5, 600.0


class Pace:
    """Moments by `clock`, the first of them after `first_s` seconds."""

    def __init__(self, first_s: float = FIRST_S, clock: Callable[[], float] = time.monotonic):
        self._clock, self._begin, self._next_s = clock, clock(), first_s

    @property
    def passed_s(self) -> float:
        """Seconds since the begin."""
        return self._clock() - self._begin

    @property
    def wait_s(self) -> float:
        """Seconds until the next moment."""
        return max(self._next_s - self.passed_s, 0.0)

    def is_due(self) -> bool:
        """Whether a moment has come; then the next one is chosen."""
        passed_s = self.passed_s
        if passed_s < self._next_s:
            return False
        self._next_s = passed_s + min(passed_s * (_GROWTH - 1), _MOST_S)
        return True
