"""End the jobs of a scheduler: cancel them until the scheduler confirms it, then wait until they end."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyasr.cluster.schedulers.scheduler import Scheduler

_MIN_WAIT_S, _MAX_WAIT_S = 0.25, 5.0  # between two checks whether jobs have ended


def end_jobs(
    scheduler: Scheduler,
    numbers: list[str],
    most_s: float,
    tell: Callable[[str], None] = lambda sentence: None,
) -> list[str]:
    """Cancel the jobs; return the numbers of those that have not ended after `most_s` seconds, according to
    the scheduler. Slots that tasks on lost hosts occupy on other hosts are released; `tell` is called with a
    message if that fails."""
    deadline, wait_s = time.monotonic() + most_s, _MIN_WAIT_S
    left, unheard, released = list(numbers), set(numbers), set[tuple[str, int]]()
    while True:
        unheard = {number for number in left if number in unheard and not scheduler.cancel(number)}
        left = [number for number in left if _is_in_progress(scheduler, number, released, tell)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(wait_s)
        wait_s = min(1.2 * wait_s, _MAX_WAIT_S)


def _is_in_progress(
    scheduler: Scheduler, number: str, released: set[tuple[str, int]], tell: Callable[[str], None]
) -> bool:
    """Whether any job of this number may still run or wait."""
    fates = scheduler.fates(number, [])
    if fates is None:
        return True
    lost = [task for task, fate in fates.items() if fate.host_lost and (number, task) not in released]
    released |= {(number, task) for task in lost}
    if lost and (held := scheduler.release(number, lost)):
        tell(held)
    return any(fate.active for fate in fates.values())
