"""Threads: parallel processing of a stream of items, and a background thread for the duration of a block."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """Results of `work` for each item, in order, computed by `num_threads` threads with at most 2 *
    num_threads items pending. With one thread, the caller computes them itself.

    An exception of `work` is raised at the position of its item.
    """
    if num_threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= 2 * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextlib.contextmanager
def following(follow: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `follow(ended)` in a thread while the block runs. `ended` is set at the end of the block, which
    waits for the thread."""
    ended = threading.Event()
    thread = threading.Thread(target=follow, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
