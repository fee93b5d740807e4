"""The ring all-reduce against float64 sums, over threads and in simulated time.
tests/parallel/communication/test_comm.py tests it over real MPI ranks."""

import numpy as np
import pytest
import torch
from ring_sums import UNIT, check_sums

from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import ThreadComm, run_threads
from pyasr.parallel.communication.ring import (
    CHUNK,
    IN_FLIGHT,
    SMALL_CHUNK,
    RingAllreduce,
    chunks_of_segment,
    hops,
)
from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import run_simulated


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_threads_sum_correctly(size):
    run_threads(size, check_sums)


def in_background(comm):
    """Sums in another thread of each rank, as in delayed averaging."""
    x = torch.arange(100.0)
    comm.background(lambda: RingAllreduce(comm, chunk=10)(x)).join()
    return x


def test_background_sum_is_correct():
    for x in run_threads(3, in_background):
        assert torch.equal(x, 3 * torch.arange(100.0))


def test_simulated_time_is_limited_by_bandwidth():
    """Each rank sends 2 (P - 1) / P vectors in sequence, so only the bandwidth matters."""
    network = ClusterNetwork(latency_s=0.0, bandwidth=1000.0)
    times = run_simulated(4, lambda comm: (RingAllreduce(comm)(torch.ones(1000)), comm.time())[1], network)
    assert times == pytest.approx([2 * 3 / 4 * 4] * 4)


@pytest.mark.parametrize("payload, greatest", [("float16", 0.6), ("bfloat16", 0.6), ("float32", 1.0)])
def test_error_grows_with_narrower_types(payload, greatest):
    """The RMS error of the average of 8 equal ranks is a fraction of one rounding per hop of this type, and
    smaller than that of a narrower type."""
    x = np.random.default_rng(1).standard_normal(20000).astype(np.float32)
    mean = run_threads(8, lambda comm: RingAllreduce(comm, payload)(torch.from_numpy(x.copy()), 1 / 8))[
        0
    ].numpy()
    error = np.sqrt(np.mean(np.square((mean - x) / x)))
    unit = UNIT[payload] or 2.0**-24
    assert 0.1 * unit < error < greatest * np.sqrt(8) * unit


class Counting(ThreadComm):
    """Counts the bytes that it sends to each rank."""

    def start_exchange(self, outgoing, to, incoming, source):
        sent.setdefault(self.rank, []).append((to, source, outgoing.numel() * outgoing.element_size()))
        return super().start_exchange(outgoing, to, incoming, source)


sent: dict[int, list] = {}


@pytest.mark.parametrize("payload, width", [("float32", 4), ("bfloat16", 2)])
def test_each_rank_sends_minimum_to_right_neighbour(payload, width):
    sent.clear()
    run_threads(
        5, lambda comm: RingAllreduce(Counting(comm.rank, comm._board), payload, chunk=7)(torch.ones(100))
    )
    for rank, messages in sent.items():
        assert {(to, source) for to, source, _ in messages} == {((rank + 1) % 5, (rank - 1) % 5)}
        assert sum(size for _, _, size in messages) == 2 * (5 - 1) * 20 * width


def test_hops_of_all_ranks_match():
    """A rank sends what its right neighbour expects, and receives a chunk before it forwards it."""
    for size, length, num_chunks in ((2, 9, 1), (3, 100, 4), (5, 3, 2)):
        all_hops = [hops(rank, size, length, num_chunks) for rank in range(size)]
        for rank in range(size):
            assert [hop.outgoing for hop in all_hops[rank - 1]] == [hop.incoming for hop in all_hops[rank]]
            late = [
                (hop.outgoing, earlier.incoming)
                for earlier, hop in zip(all_hops[rank], all_hops[rank][num_chunks:])
            ]
            assert all(outgoing == incoming for outgoing, incoming in late)


def test_chunk_sizes_follow_segment_size():
    """Small segments are sent whole, medium ones in a few chunks, large ones in chunks of the maximum
    size."""
    assert [
        chunks_of_segment(length, CHUNK)
        for length in (0, 1, SMALL_CHUNK, 3 * SMALL_CHUNK, IN_FLIGHT * CHUNK + 1)
    ] == [1, 1, 1, 3, 5]


def test_invalid_vectors_and_types_are_refused():
    reduce = RingAllreduce(SoloComm())
    for bad in (
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(2, 2),
        torch.zeros(6)[::2],
        torch.zeros(3, device="meta"),
    ):
        with pytest.raises(TypeError, match="expected a contiguous float32 vector in host memory, not "):
            reduce(bad)
    with pytest.raises(ValueError, match="unknown type 'int8'; use one of float32, float16, bfloat16"):
        RingAllreduce(SoloComm(), "int8")
