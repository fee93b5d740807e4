"""Threads in virtual time, which passes only while all of them wait.

    clock = VirtualClock()
    clock.run({"one": lambda: clock.sleep(3600), "other": lambda: clock.sleep(60)})
    assert clock.now == 3600.0  # without having taken that time

Every virtual thread is a Python thread, with its own thread-local state such as torch's gradient mode, but
only one of them runs: it holds the token. When it has to wait, it reads the event queue, which is ordered by
time and, for equal times, by insertion. It advances the clock to the first event and passes the token to the
thread that this event wakes. So a run depends on nothing but the program and is the same, bit for bit, every
time.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

# polls of the clock or for a message by one thread at one time; more are an endless loop
_MAX_POLLS = 100_000


class Deadlock(RuntimeError):
    """All virtual threads wait, and the event queue is empty."""


class _Ended(BaseException):
    """Unwinds a thread when the run is over."""


def _do_not_preempt() -> None:
    """Prevent the calling thread, when it is woken, from preempting the thread that wakes it, which still
    holds Python's lock.

    That halves the cost of passing the token, from 10 to 5 microseconds of processor time as measured; Linux
    only.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # harmless: only slower
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class VirtualThread:
    """A function in its own thread under a clock; a Task, see `pyasr.parallel.communication.comm`."""

    def __init__(self, clock: VirtualClock, name: str, function: Callable[[], Any]):
        self.name, self.result = name, None
        self.token = threading.Lock()
        self.token.acquire()
        # incremented whenever this thread starts to run, which invalidates its older events
        self.turn = 0
        self.waits_for: Callable[[], str] = lambda: "its first turn"
        self.error: BaseException | None = None
        self.done = False
        self.joiners: deque[VirtualThread] = deque()
        self.polls = (0.0, 0)  # (time, number of polls at this time)
        self._clock = clock
        self.thread = threading.Thread(target=self._run, args=(function,), name=name, daemon=True)
        self.thread.start()

    def _run(self, function: Callable[[], Any]) -> None:
        _do_not_preempt()
        self.token.acquire()
        try:
            self._clock.raise_if_over()
            self.result = function()
        except BaseException as error:
            self.error = error
        self.done = True
        self._clock.end_thread(self)

    def check(self) -> None:
        """Raise the function's exception, if it has raised one."""
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait for the end of the function; raises its exception."""
        if not self.done:
            self._clock.wait(self.joiners, lambda: f"the end of {self.name}")
        self.check()


class VirtualClock:
    """Virtual time in seconds from 0, the event queue, and the threads. Only the running thread may call its
    methods.

    limit_s   virtual duration after which a run ends with a TimeoutError
    """

    def __init__(self, limit_s: float = math.inf):
        self.now, self.over = 0.0, False
        self._limit_s = limit_s
        # (time, order, thread, its turn) or (..., None, action)
        self._events: list[tuple[float, int, VirtualThread | None, Any]] = []
        self._order = itertools.count()
        self._running: VirtualThread | None = None
        self._alive: dict[VirtualThread, None] = {}  # in the order of their start
        self._mains: list[VirtualThread] = []
        self._failed: list[VirtualThread] = []
        self._error: BaseException | None = None
        self._finished = threading.Lock()

    def run(self, mains: dict[str, Callable[[], Any]]) -> list:
        """Call these functions, each in a virtual thread of its name, until all have returned; returns their
        results, in order.

        If one raises, all threads are ended and its exception is raised here; the same holds for Deadlock.
        Threads which they have started end with the last of them.
        """
        self._finished.acquire()
        self._mains = [self.start(name, function) for name, function in mains.items()]
        try:
            self._resume(self._next())
            self._finished.acquire()
        except BaseException:  # the user's Ctrl-C: the running thread ends at its next wait
            self.over = True
            raise
        for thread in self._mains:
            thread.thread.join()
        if self._error is not None:
            raise self._error
        return [thread.result for thread in self._mains]

    def start(self, name: str, function: Callable[[], Any]) -> VirtualThread:
        """Start a thread, which runs after the others that are due now."""
        self.raise_if_over()
        thread = VirtualThread(self, name, function)
        self._alive[thread] = None
        self._wake_at(self.now, thread)
        return thread

    def call_at(self, time: float, action: Callable[[], None]) -> None:
        """Call `action`, which must not wait, at this time."""
        heapq.heappush(self._events, (time, next(self._order), None, action))

    def sleep_until(self, time: float) -> None:
        """Suspend the calling thread until this time; if that has passed, until the others that are due now
        have run."""
        thread = self.current()
        self._wake_at(max(time, self.now), thread)
        self._suspend(thread, lambda: f"{time:.9g} s")

    def wait(self, queue: deque, waits_for: Callable[[], str], timeout: float | None = None) -> bool:
        """Suspend the calling thread in `queue` until a `wake`; returns False after a timeout of `timeout`
        seconds.

        waits_for   returns a description of the event, for the message of a deadlock
        """
        thread = self.current()
        queue.append(thread)
        if timeout is not None and timeout < math.inf:
            self._wake_at(self.now + max(timeout, 0.0), thread)
        self._suspend(thread, waits_for)
        if timeout is None or thread not in queue:
            return True
        queue.remove(thread)
        return False

    def wake(self, queue: deque, num: int | None = None, at: float | None = None) -> None:
        """Wake the first `num` threads (None: all) of `queue`, now or later."""
        for _ in range(len(queue) if num is None else min(num, len(queue))):
            self._wake_at(self.now if at is None else at, queue.popleft())

    def current(self) -> VirtualThread:
        """The calling thread. Raises RuntimeError in a thread that does not belong to this clock."""
        thread = self._running
        if thread is None or thread.thread.ident != threading.get_ident():
            raise RuntimeError(
                "only simulated ranks and the threads of their `background` can use virtual time, during "
                "the simulation"
            )
        return thread

    def poll(self) -> float:
        """The time. Raises RuntimeError for a thread that polls without letting time pass."""
        thread = self.current()
        since, num = thread.polls
        thread.polls = (self.now, num + 1 if since == self.now else 1)
        if thread.polls[1] > _MAX_POLLS:
            raise RuntimeError(
                f"{thread.name} has polled {_MAX_POLLS} times for a message or the clock without letting "
                f"time pass, at {self.now:.9g} s: sleep between two polls"
            )
        return self.now

    def raise_if_over(self) -> None:
        """End the calling thread if the run is over."""
        if self.over:
            raise _Ended

    def end_thread(self, thread: VirtualThread) -> None:
        """End the calling thread."""
        del self._alive[thread]
        self.wake(thread.joiners)
        if thread.error is not None and not self.over:
            self._failed.append(thread)
        if thread in self._mains and (thread.error is not None or all(main.done for main in self._mains)):
            self._end(thread.error)
        if self._alive:
            self._resume(self._next())
        else:
            self._running = None
            self._finished.release()

    def _wake_at(self, time: float, thread: VirtualThread) -> None:
        heapq.heappush(self._events, (time, next(self._order), thread, thread.turn))

    def _suspend(self, thread: VirtualThread, waits_for: Callable[[], str]) -> None:
        """Let others run until something wakes this thread."""
        self.raise_if_over()
        thread.waits_for = waits_for
        following = self._next()
        if following is not thread:
            self._resume(following)
            thread.token.acquire()
        thread.turn += 1
        self.raise_if_over()

    def _resume(self, thread: VirtualThread) -> None:
        self._running = thread
        thread.token.release()

    def _next(self) -> VirtualThread:
        """Process the event queue until it wakes a thread; returns that thread, or any thread that has not
        ended when the run is over."""
        while not self.over:
            if not self._events:
                self._end(
                    Deadlock(f"deadlock at {self.now:.9g} s of simulated time: {self._describe_waits()}")
                )
                break
            time, _, thread, todo = heapq.heappop(self._events)
            if thread is not None and todo != thread.turn:
                continue
            if time > self._limit_s:
                self._end(
                    TimeoutError(
                        f"no end within {self._limit_s:.9g} s of simulated time: {self._describe_waits()}"
                    )
                )
                break
            self.now = time
            if thread is not None:
                return thread
            todo()
        return next(iter(self._alive))

    def _end(self, error: BaseException | None) -> None:
        """End the run; only the first error is kept."""
        if not self.over:
            self.over, self._error = True, error

    def _describe_waits(self) -> str:
        names: dict[str, list[str]] = {}
        for thread in self._alive:
            names.setdefault(thread.waits_for(), []).append(thread.name)
        sentence = [
            f"{', '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for {what}"
            for what, waiting in names.items()
        ]
        return "; ".join(sentence + [f"{thread.name} has raised {thread.error!r}" for thread in self._failed])


class VirtualCondition:
    """A `threading.Condition` for virtual threads: a reentrant lock with wait and notify.

    The thread that has waited longest gets the lock, and is notified, first.
    """

    def __init__(self, clock: VirtualClock):
        self._clock = clock
        self._owner: VirtualThread | None = None
        self._depth = 0
        self._lockers: deque[VirtualThread] = deque()
        self._waiters: deque[VirtualThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; False if it is not free (not `blocking`) or not within `timeout` seconds."""
        me = self._clock.current()
        if self._owner is not None and self._owner is not me:
            if not blocking or not self._clock.wait(
                self._lockers, self._describe_owner, None if timeout < 0 else timeout
            ):
                return False
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Release the lock. Raises RuntimeError for a thread that does not hold it."""
        if self._clock.over:  # a wait has ended without the lock
            return
        self._check_owner("release")
        self._depth -= 1
        if self._depth == 0:
            self._hand_over()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, acquire the lock again; False after a timeout of
        `timeout` seconds."""
        self._check_owner("wait")
        me, depth = self._owner, self._depth
        self._hand_over()
        notified = self._clock.wait(self._waiters, lambda: "a notification", timeout)
        if self._owner is not None:
            self._clock.wait(self._lockers, self._describe_owner)
        self._owner, self._depth = me, depth
        return notified

    def notify(self, n: int = 1) -> None:
        """Wake `n` waiting threads."""
        self._check_owner("notify")
        self._clock.wake(self._waiters, n)

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self.notify(len(self._waiters))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error) -> None:
        self.release()

    def _hand_over(self) -> None:
        """Pass the lock to the first waiting thread and wake it."""
        self._depth = 0
        self._owner = self._lockers[0] if self._lockers else None
        self._clock.wake(self._lockers, 1)

    def _check_owner(self, what: str) -> None:
        if self._owner is not self._clock.current():
            raise RuntimeError(f"cannot {what} a condition whose lock this thread does not hold")

    def _describe_owner(self) -> str:
        assert self._owner is not None
        return f"a lock that {self._owner.name} holds"
