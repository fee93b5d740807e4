"""Streams of work by several threads: order, concurrency, bounds, failures."""

import threading
import time

import pytest

from pyasr.base.jobs.in_threads import in_threads


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_results_keep_order_of_items(num_threads):
    def work(item):
        time.sleep(0.002 * (7 - item % 7))
        return item * item

    assert list(in_threads(work, iter(range(30)), num_threads)) == [item * item for item in range(30)]
    assert list(in_threads(work, [], num_threads)) == []


def test_num_threads_items_run_concurrently():
    together = threading.Barrier(3, timeout=120)
    assert sorted(in_threads(lambda item: together.wait(), range(6), 3)) == [0, 0, 1, 1, 2, 2]


def test_one_thread_runs_in_caller():
    assert set(in_threads(lambda item: threading.get_ident(), range(3), 1)) == {threading.get_ident()}


@pytest.mark.parametrize("num_threads, most", [(1, 1), (2, 4), (3, 6)])
def test_items_are_read_ahead_only_up_to_limit(num_threads, most):
    taken = []
    results = in_threads(lambda item: item, (taken.append(item) or item for item in range(50)), num_threads)
    for seen, _ in enumerate(results):
        assert len(taken) <= seen + most
    assert taken == list(range(50))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_exception_is_raised_at_position_of_its_item(num_threads):
    results = in_threads(lambda item: 1 / (item - 4), range(1000), num_threads)
    assert [next(results) for _ in range(4)] == [-1 / 4, -1 / 3, -1 / 2, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
