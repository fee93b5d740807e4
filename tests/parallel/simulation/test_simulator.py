"""Simulated time: durations of small scenarios calculated by hand, equal in every run, and no deadlocks."""

import itertools
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from collectives import check_all

from pyasr.base.errors import UserError
from pyasr.parallel.simulation.simulator import ClusterNetwork, ComputeTime, Deadlock, run_simulated

NETWORK = ClusterNetwork(latency_s=0.5, bandwidth=8.0)
HOSTS = ClusterNetwork(
    latency_s=0.5, bandwidth=8.0, ranks_per_host=2, intra_host_latency_s=0.25, intra_host_bandwidth=16.0
)


def message(num_bytes: int) -> np.ndarray:
    return np.zeros(num_bytes, np.uint8)


def times_when(num_ranks: int, function, network: ClusterNetwork = NETWORK) -> list[float]:
    """Time at which the function returns on each rank."""

    def rank(comm):
        function(comm)
        return comm.time()

    return run_simulated(num_ranks, rank, network)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "network",
    [ClusterNetwork(1e-4, 1e9), ClusterNetwork(1e-4, 1e6, ranks_per_host=3), ClusterNetwork(0, np.inf)],
)
def test_simulated_ranks_pass_all_checks(num_ranks, network):
    run_simulated(num_ranks, check_all, network)


def test_duration_of_one_message():
    """16 bytes at 8 bytes per second are sent after 2 s, and arrive half a second later."""

    def rank(comm):
        comm.send(message(16), 1, tag=3) if comm.rank == 0 else comm.receive(message(16), tag=3)

    assert times_when(2, rank) == [2.0, 2.5]


def test_messages_share_link_of_sender():
    def rank(comm):
        if comm.rank == 0:
            tasks = [comm.background(lambda to=to: comm.send(message(16), to, tag=3)) for to in (1, 2)]
            [task.join() for task in tasks]
        else:
            comm.receive(message(16), tag=3)

    assert times_when(3, rank) == [4.0, 2.5, 4.5]


def test_messages_share_link_of_receiver():
    """Both senders are free after 2 s. The second message waits for the first at the receiver's link."""

    def rank(comm):
        if comm.rank < 2:
            return comm.send(message(16), 2, tag=comm.rank), comm.time()
        return [(comm.receive(message(16), tag), comm.time()) for tag in (0, 1)]

    assert run_simulated(3, rank, NETWORK) == [(None, 2.0), (None, 2.0), [(0, 2.5), (1, 4.5)]]


def test_duration_of_pipelined_sends():
    """Four pieces of 1 s via rank 1, which forwards each one while it receives the next."""

    def rank(comm):
        report = []
        for _ in range(4):
            if comm.rank > 0:
                comm.receive(message(8), tag=1)
            if comm.rank < 2:
                comm.send(message(8), comm.rank + 1, tag=1)
            report.append(comm.time())
        return report

    assert run_simulated(3, rank, NETWORK) == [
        [1.0, 2.0, 3.0, 4.0],
        [2.5, 3.5, 4.5, 5.5],
        [3.0, 4.0, 5.0, 6.0],
    ]


def test_exchange_uses_both_directions_at_once():
    assert (
        times_when(
            4, lambda comm: comm.exchange(message(16), (comm.rank + 1) % 4, message(16), (comm.rank - 1) % 4)
        )
        == [2.5] * 4
    )


def test_exchange_ends_after_own_message_is_sent():
    """Rank 1's message of 8 bytes would arrive at 1.5 s, but rank 0's link is busy with an earlier message
    until 2 s, then for 1 s more."""

    def rank(comm):
        if comm.rank == 0:
            comm.background(lambda: comm.send(message(16), 2, tag=1))
            comm.sleep(0)
        if comm.rank < 2:
            comm.exchange(message(8), 1 - comm.rank, message(8), 1 - comm.rank)

    assert times_when(3, rank) == [3.0, 3.5, 0.0]


def test_ranks_of_a_host_share_its_link():
    """0 -> 2 and 1 -> 3 share the link between the two hosts. Meanwhile, 0 -> 1 and 3 -> 3 stay within their
    hosts."""

    def rank(comm):
        near = {0: 1, 3: 3}.get(comm.rank)
        sending = [comm.background(lambda: comm.send(message(16), near, tag=1))] if near else []
        if comm.rank < 2:
            sending.append(comm.background(lambda: comm.send(message(16), comm.rank + 2, tag=2)))
        report = [
            (tag, comm.receive(message(16), tag), comm.time())
            for tag in {1: [1], 2: [2], 3: [1, 2]}.get(comm.rank, [])
        ]
        [task.join() for task in sending]
        return report, comm.time()

    assert run_simulated(4, rank, HOSTS) == [
        ([], 2.0),
        ([(1, 0, 1.25)], 4.0),
        ([(2, 0, 2.5)], 2.5),
        ([(1, 3, 1.25), (2, 1, 4.5)], 4.5),
    ]


def test_packet_overtakes_long_message():
    """Eight bytes to rank 2 overtake the 16 to rank 1. Eight bytes to rank 1 come after these."""

    def rank(comm):
        if comm.rank == 0:
            tasks = [
                comm.background(lambda a=a: comm.send(message(a[0]), a[1], tag=a[0]))
                for a in ((16, 1), (8, 1), (8, 2))
            ]
            return [task.join() for task in tasks]
        return [
            (tag, comm.receive(message(tag), tag), comm.time()) for tag in {1: (16, 8), 2: (8,)}[comm.rank]
        ]

    found = run_simulated(3, rank, replace(NETWORK, packet=8))
    assert found[1:] == [[(16, 0, 2.5), (8, 0, 3.5)], [(8, 0, 1.5)]]


def test_random_traffic_equals_two_queues():
    """Every message queues at the sender's link in sending order, then at the receiver's link in arrival
    order."""
    rng = np.random.default_rng(5)
    plan = sorted(
        (float(rng.random() * 20), int(rng.integers(6)), int(rng.integers(6)), int(rng.integers(1, 30)))
        for _ in range(150)
    )

    def rank(comm):
        def one(begin, to, size, number):
            comm.sleep(begin)
            comm.send(message(size), to, tag=number)

        def other(size, number):
            comm.receive(message(size), tag=number)
            return number, comm.time()

        for number, (begin, source, to, size) in enumerate(plan):
            if source == comm.rank:
                comm.background(lambda arguments=(begin, to, size, number): one(*arguments))
        tasks = [
            comm.background(lambda a=(p[3], n): other(*a)) for n, p in enumerate(plan) if p[2] == comm.rank
        ]
        [task.join() for task in tasks]
        return [task.result for task in tasks]

    near = ClusterNetwork(0.5, 8.0, intra_host_latency_s=0.5, intra_host_bandwidth=8.0)
    found = dict(sum(run_simulated(6, rank, near), []))
    assert [found[n] for n in range(len(plan))] == pytest.approx(arrivals_of(plan), rel=1e-12)


def arrivals_of(plan: list[tuple]) -> list[float]:
    """By two passes over all messages. A rank has separate links to itself."""
    coming, free = [], {}
    for number, (begin, source, to, size) in enumerate(plan):
        begin = max(begin, free.get((source, source == to), 0.0))
        free[source, source == to] = begin + size / 8
        coming.append((begin + 0.5, number))
    arrivals, free = [0.0] * len(plan), {}
    for at, number in sorted(coming):
        _, source, to, size = plan[number]
        arrivals[number] = free[to, source == to] = max(at, free.get((to, source == to), 0.0)) + size / 8
    return arrivals


def test_duration_of_ring_allreduce():
    """2 x 3 steps of half a second plus the time of 16 bytes each, after the last rank has started."""

    def rank(comm):
        comm.sleep(comm.rank)
        comm.allreduce(np.ones(8))

    assert times_when(4, rank) == [3 + 6 * (0.5 + 2.0)] * 4


def test_straggler_delays_barrier():
    def rank(comm):
        comm.sleep(ComputeTime(0.5, factors={2: 20.0}).sample(comm.rng, comm.rank))
        comm.barrier()

    assert times_when(5, rank) == [10 + 3 * 0.5] * 5


def test_durations_of_bcast_and_objects():
    assert times_when(4, lambda comm: comm.bcast(message(16), 2)) == [2 * 0.5 + 2.0] * 4
    num_bytes = [len(pickle.dumps("x" * 50 * rank)) for rank in range(4)]
    assert (
        times_when(4, lambda comm: comm.allgather("x" * 50 * comm.rank))
        == [2 * 0.5 + sum(num_bytes[1:]) / 8] * 4
    )


def test_collectives_within_host_are_fast():
    def rank(comm):
        host = comm.split_by_host()
        begin = comm.time()
        host.allreduce(np.ones(4))
        pair = comm.split(comm.rank % 2)
        middle = comm.time()
        pair.allreduce(np.ones(4))
        return host.size, begin, middle - begin, comm.time() - middle

    split, near, far = 2 * 0.5, 2 * (0.25 + 1.0), 2 * (0.5 + 2.0)
    assert run_simulated(4, rank, HOSTS) == [(2, split, near + split, far)] * 4


def test_lock_is_held_while_sending():
    """The other thread of rank 0 requests the lock after 1 s and gets it when the message is sent."""

    def rank(comm):
        if comm.rank == 1:
            return comm.receive(message(16), tag=1)
        lock, taken = comm.condition(), []

        def other():
            comm.sleep(1.0)
            assert not lock.acquire(blocking=False) and not lock.acquire(timeout=0.25)
            with lock:
                taken.append(comm.time())

        task = comm.background(other)
        with lock:
            comm.send(message(16), 1, tag=1)
        task.join()
        return taken

    assert run_simulated(2, rank, NETWORK) == [[2.0], 0]


def test_communication_overlaps_computation():
    """An all-reduce of 2.5 s in the background of 4 s of work takes no extra time; behind 1 s of work, it
    takes 1.5 s."""

    def rank(comm):
        report = []
        for work_s in (4.0, 1.0):
            task = comm.background(lambda: comm.allreduce(np.ones(3)))
            comm.sleep(work_s)
            task.join()
            report.append(comm.time())
        return report

    assert run_simulated(2, rank, ClusterNetwork(0.25, 12.0)) == [[4.0, 6.5]] * 2


def test_waiting_returns_arrived_message():
    def rank(comm):
        if comm.rank == 0:
            return comm.send(message(16), 1, tag=1)
        report = []
        for _ in range(3):
            report.append(comm.probe(tag=1))
            comm.sleep(1.25)
        return report

    assert run_simulated(2, rank, NETWORK)[1] == [None, None, 0]


def gossip(comm) -> tuple:
    """Asynchronous averaging with the parameters that arrive first, which a background thread receives."""
    lock, x, sources = comm.condition(), comm.rng.normal(size=4), []

    def take_in():
        other = np.empty(4)
        for _ in range(30):
            sources.append(comm.receive(other, tag=1))
            with lock:
                x[...] = (x + other) / 2
                lock.notify()

    task, compute = comm.background(take_in), ComputeTime(0.1, 0.5, {7: 5.0})
    for k in range(30):
        comm.sleep(compute.sample(comm.rng, comm.rank))
        with lock:
            comm.send(x, (comm.rank + 1 + 7 * k) % comm.size, tag=1)
    task.join()
    return comm.time(), sources, comm.allreduce(x).tolist()


def test_runs_are_bit_identical():
    network = ClusterNetwork(1e-3, 1e4, ranks_per_host=4)
    first = run_simulated(64, gossip, network, seed=3)
    assert first == run_simulated(64, gossip, network, seed=3)
    assert first != run_simulated(64, gossip, network, seed=4)


def test_128_ranks_with_background_threads():
    """Ten all-reduces, sleeps and background tasks per rank. The work of the simulator is linear in the
    number of ranks."""

    def rank(comm):
        x = np.array([comm.rank])
        for _ in range(10):
            task = comm.background(lambda: comm.allreduce(x, "max"))
            comm.sleep(1.0)
            task.join()
        return comm.time(), int(x[0])

    calls = {}
    for size in (32, 128):
        counts = itertools.count()
        threading.setprofile(lambda frame, event, argument: next(counts))
        try:
            assert run_simulated(size, rank, ClusterNetwork(1e-5, 1e9)) == [(10.0, size - 1)] * size
        finally:
            threading.setprofile(None)
        calls[size] = next(counts)
    assert calls[32] > 0 and calls[128] < 1.5 * (128 / 32) * calls[32], calls


def test_deadlocks_are_reported():
    def crossed(comm):
        comm.receive(message(1), tag=4 + comm.rank, source=1 - comm.rank)

    with pytest.raises(
        Deadlock,
        match="^deadlock at 0 s of simulated time: rank 0 waits for a message with tag 4 "
        "from rank 1; rank 1 waits for a message with tag 5 from rank 0$",
    ):
        run_simulated(2, crossed, NETWORK)

    def some(comm):
        comm.sleep(1.5)
        if comm.rank % 3:
            comm.barrier()

    with pytest.raises(
        Deadlock,
        match="at 1.5 s.*: rank 1, rank 2 wait for barrier, which these ranks have not called: 0, 3$",
    ):
        run_simulated(4, some, NETWORK)


def test_deadlocks_of_threads_are_reported():
    def locked(comm):
        lock = comm.condition()
        lock.acquire()
        comm.background(lambda: 1 / 0)
        comm.background(lock.acquire).join()

    with pytest.raises(
        Deadlock,
        match=r"rank 0 waits for the end of thread 2 of rank 0; thread 2 of rank 0 waits for a lock that "
        r"rank 0 "
        r"holds; thread 1 of rank 0 has raised ZeroDivisionError\('division by zero'\)",
    ):
        run_simulated(1, locked, NETWORK)


def test_endless_runs_are_reported():
    def poll(comm):
        while comm.probe(tag=1) is None:
            comm.sleep(0.001)

    with pytest.raises(TimeoutError, match="no end within 2 s of simulated time: rank 0 waits for .* s"):
        run_simulated(1, poll, NETWORK, limit_s=2.0)

    def poll_hard(comm):
        while comm.probe(tag=1) is None:
            pass

    with pytest.raises(RuntimeError, match="rank 0 has polled 100000 times .* sleep between two polls"):
        run_simulated(1, poll_hard, NETWORK)


def test_exception_in_rank_ends_all_threads():
    ended = []

    def rank(comm):
        lock = comm.condition()
        comm.background(lambda: comm.receive(message(1), tag=1))
        try:
            with lock:
                comm.background(lock.acquire)
                if comm.rank == 2:
                    comm.sleep(1.0)
                    raise ZeroDivisionError("no frames")
                lock.wait()
        finally:
            ended.append(comm.rank)

    begin = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="no frames"):
        run_simulated(4, rank, NETWORK)
    assert sorted(ended) == [0, 1, 2, 3] and threading.active_count() == begin


def test_background_threads_end_with_ranks():
    def rank(comm):
        comm.background(lambda: comm.receive(message(1), tag=1))
        comm.sleep(1.0)
        return comm.rank

    begin = threading.active_count()
    assert run_simulated(3, rank, NETWORK) == [0, 1, 2]
    assert threading.active_count() == begin


def test_torch_modes_are_per_rank():
    def rank(comm):
        with torch.set_grad_enabled(comm.rank == 1):
            comm.barrier()
            comm.sleep(comm.rank)
            return torch.is_grad_enabled()

    assert run_simulated(3, rank, NETWORK) == [False, True, False]


@pytest.mark.parametrize("mistake, expected_message", [
    (lambda comm: comm.barrier() if comm.rank else comm.allreduce(np.ones(2)),
     r"rank 1 calls barrier while rank 0 is in allreduce \(sum\) of 2 float64"),
    (lambda comm: comm.allreduce(np.ones(2 + comm.rank)),
     "rank 1 calls .* of 3 float64 while rank 0 is in .* of 2 float64"),
    (lambda comm: [comm.background(comm.barrier) for _ in range(2)][1].join(),
     "rank 0 calls barrier in two threads at once"),
    (lambda comm: comm.exchange(message(2), 1 - comm.rank, message(3), 1 - comm.rank),
     "rank . receives 2 bytes from rank . with tag 0, but expects 3"),
    (lambda comm: comm.send(message(2), -1, tag=1),
     "rank 0 sends to rank -1, but its group has only 2 ranks"),
    (lambda comm: comm.sleep(-1), "cannot sleep for -1 s"),
])  # fmt: skip
def test_misuse_is_reported(mistake, expected_message):
    with pytest.raises((RuntimeError, ValueError), match=expected_message):
        run_simulated(2, mistake, NETWORK)


def test_plain_threads_are_refused():
    def rank(comm):
        errors = []

        def other():
            try:
                comm.sleep(1.0)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return errors

    assert "their `background`" in run_simulated(1, rank, NETWORK)[0][0]


def test_compute_time_has_given_mean_and_variation():
    """Mean and variation over many minibatches; a slow rank; no randomness without variation."""
    rng, compute = np.random.default_rng(1), ComputeTime(0.2, 0.3, {4: 10.0})
    samples = np.array([compute.sample(rng) for _ in range(40_000)])
    assert (
        samples.mean() == pytest.approx(0.2, rel=0.01)
        and samples.std() == pytest.approx(0.06, rel=0.03)
        and samples.min() > 0
    )
    assert np.mean([compute.sample(rng, 4) for _ in range(10_000)]) == pytest.approx(2.0, rel=0.02)
    assert ComputeTime(0.2).sample(rng, 4) == 0.2


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClusterNetwork(-1, 1),
        lambda: ClusterNetwork(0, 0),
        lambda: ClusterNetwork(0, 1, 0),
        lambda: ClusterNetwork(float("nan"), 1),
        lambda: ComputeTime(-1),
        lambda: ComputeTime(1, factors={0: 0.0}),
    ],
)
def test_invalid_configurations_are_refused(make):
    with pytest.raises(UserError):
        make()
