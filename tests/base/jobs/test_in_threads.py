"""Streams of work by several threads: order, concurrency, bounds, failures."""

import threading
import time

import pytest

from pyasr.base.jobs.in_threads import in_threads


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(num_threads):
    def work(item):
        time.sleep(0.002 * (7 - item % 7))
        return item * item

    assert list(in_threads(work, iter(range(30)), num_threads)) == [item * item for item in range(30)]
    assert list(in_threads(work, [], num_threads)) == []


def test_so_many_are_at_work_at_once():
    together = threading.Barrier(3, timeout=120)
    assert sorted(in_threads(lambda item: together.wait(), range(6), 3)) == [0, 0, 1, 1, 2, 2]


def test_one_thread_is_the_callers_own():
    assert set(in_threads(lambda item: threading.get_ident(), range(3), 1)) == {threading.get_ident()}


@pytest.mark.parametrize("num_threads, most", [(1, 1), (2, 4), (3, 6)])
def test_items_are_taken_as_results_are(num_threads, most):
    taken = []
    results = in_threads(lambda item: item, (taken.append(item) or item for item in range(50)), num_threads)
    for seen, _ in enumerate(results):
        assert len(taken) <= seen + most
    assert taken == list(range(50))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_what_fails_is_raised_in_its_place(num_threads):
    results = in_threads(lambda item: 1 / (item - 4), range(1000), num_threads)
    assert [next(results) for _ in range(4)] == [-1 / 4, -1 / 3, -1 / 2, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
