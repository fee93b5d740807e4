"""Work in threads: on a stream of items by several at once, or beside a block."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item, Result = TypeVar("Item"), TypeVar("Result")


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """`work` of each item, in their order, `num_threads` at a time; at most 2 * num_threads are under way. One thread is the caller's own.

    Raises what `work` raises, in its place.
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
def beside(follow: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `follow(ended)` in a thread while the block runs. `ended` is set at the end of the block, which waits for the thread."""
    ended = threading.Event()
    thread = threading.Thread(target=follow, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
