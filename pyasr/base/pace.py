"""Schedule of progress reports of a long-running program: after 20 s, then at intervals of half the elapsed
time, at most ten minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S = 20.0
GROWTH, _MAX_S = 1.5, 600.0


class Pace:
    """Times of reports by `clock`, the first after `first_s` seconds."""

    def __init__(self, first_s: float = FIRST_S, clock: Callable[[], float] = time.monotonic):
        self._clock, self._begin, self._next_s = clock, clock(), first_s

    @property
    def passed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._begin

    @property
    def wait_s(self) -> float:
        """Seconds until the next report."""
        return max(self._next_s - self.passed_s, 0.0)

    def is_due(self) -> bool:
        """Whether a report is due; if so, the next one is scheduled."""
        passed_s = self.passed_s
        if passed_s < self._next_s:
            return False
        self._next_s = passed_s + min(passed_s * (GROWTH - 1), _MAX_S)
        return True
