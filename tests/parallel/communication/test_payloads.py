"""Parameters sent in 16 bits: against float32 runs and numpy's rounding; conserved quantities."""

import numpy as np
import pytest
import torch
from payload_ranks import OVER_MPI, over_mpi, start, train
from ring_sums import UNIT
from scheme_toys import mixing_of

from pyasr.base.cli.job_options import JobOptions
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import ThreadComm, run_threads
from pyasr.parallel.communication.ring import PAYLOAD_TYPES
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.scheme_options import PAYLOADS
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import SchemeOptions, make_strategy, mixing_options, strategy_names
from pyasr.parallel.topology.topologies import TOPOLOGIES

NARROW = ("float16", "bfloat16")
ASYNCHRONOUS = ("adpsgd", "hadpsgd", "asgd")
GOSSIP = sorted(set(TOPOLOGIES) - {"complete"})
NUM_RANKS = 4


def run(name, payload, parameters=1000.0, moves=1.0, resume=None, **more):
    """Mixings of each of 4 ranks. Asynchronous schemes run in simulated time, so that the order does not
    depend on message sizes."""
    options = mixing_of(name, period_frames=20, payload=payload, ranks_per_node=2, **more)

    def rank(comm):
        return train(comm, options, parameters, moves, resume)

    return (
        run_simulated(NUM_RANKS, rank, ClusterNetwork(1e-9, 1e15))
        if name in ASYNCHRONOUS
        else run_threads(NUM_RANKS, rank)
    )


def afters(ranks):
    """Parameters after mixings, rank by rank, float64 (mixings, DIM)."""
    return np.array([mixed.after for mixings in ranks for mixed in mixings], np.float64)


def ends(ranks):
    """The last mixing of each epoch and rank."""
    return [[mixed for mixed in mixings if mixed.report.last] for mixings in ranks]


@pytest.mark.parametrize(
    "name, more",
    [
        *((name, {}) for name in strategy_names()),
        ("ring", dict(all_reduce_epochs=1)),
        ("dpsgd", dict(topology="complete")),
        ("adpsgd", dict(topology="random-ring")),
        ("hadpsgd", dict(topology="fixed-ring")),
    ],
)
@pytest.mark.parametrize("payload", NARROW)
def test_changes_are_rounded_and_parameters_are_not(name, more, payload):
    """Near 1000, bfloat16 represents every fourth integer, float16 every half. Changes of 1 arrive with the
    16-bit precision of changes."""
    wide, narrow = run(name, "float32", **more), run(name, payload, **more)
    moved, apart = afters(wide) - start(1000.0).numpy(), afters(narrow) - afters(wide)
    error = np.sqrt(np.square(apart).mean() / np.square(moved).mean())
    assert 0.02 * UNIT[payload] < error < 3 * UNIT[payload], error / UNIT[payload]
    for of_ranks in zip(*(ends(narrow) if name in ASYNCHRONOUS else narrow), strict=True):
        assert not of_ranks[0].report.equal or len({mixed.after.tobytes() for mixed in of_ranks}) == 1


@pytest.mark.parametrize("name", [*GOSSIP, "dpsgd"])
@pytest.mark.parametrize("payload", NARROW)
def test_gossip_conserves_mean(name, payload):
    """Up to the float32 rounding of each rank, although messages are rounded to 16 bits."""
    for of_ranks in zip(*run(name, payload)):
        before, after = (np.array([mixed[place] for mixed in of_ranks], np.float64) for place in (0, 1))
        assert np.abs(after.mean(0) - before.mean(0)).max() < 2 * 2.0**-24 * 2000


def test_adpsgd_conserves_mean():
    """Both ends of an exchange change by the same amount, so the consensus equals that of float32, where one
    rounding is up to 6e-5."""
    wide, narrow = (afters(ends(run("adpsgd", payload))) for payload in ("float32", "bfloat16"))
    assert (
        0
        < np.abs(wide - narrow).max()
        < 1e-3
        < 0.1 * UNIT["bfloat16"] * np.abs(wide - start(1000.0).numpy()).max()
    )


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e9])
@pytest.mark.parametrize("payload", NARROW)
@pytest.mark.parametrize("name", ["allreduce", "d1d", "base2", "easgd", "asgd", "hadpsgd"])
def test_changes_of_any_size_are_sent(name, payload, size):
    """float16 has no numbers below 6e-8 or above 65504."""
    wide, narrow = (afters(run(name, p, parameters=0.0, moves=size)) for p in ("float32", payload))
    assert (
        np.abs(narrow - wide).max() < 8 * UNIT[payload] * np.abs(wide).max()
        and 0.5 * size < np.abs(wide).max() < 40 * size
    )


def test_non_finite_values_reach_all_ranks():
    def rank(comm):
        codec, x = PayloadCodec(comm, SchemeOptions(payload="float16")), torch.ones(4)
        codec.set_base(torch.zeros(4))
        x[comm.rank] = [np.nan, np.inf, 1.0][comm.rank]
        return codec.sum(x, 1 / 3, 1.0).numpy()

    for x in run_threads(3, rank):
        assert np.isnan(x[0]) and x[1] == np.inf and x[2:] == pytest.approx(1, rel=1e-3)


def rounded(x, payload):
    """float64 numbers as received: scaled by a power of two, rounded to nearest, ties to even."""
    if payload == "bfloat16":
        bits = np.asarray(x, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)
    scale = 2.0 ** (14 - np.floor(np.log2(np.abs(x).max())))
    return (x * scale).astype(np.float16).astype(np.float64) / scale


@pytest.mark.parametrize("payload", NARROW)
@pytest.mark.parametrize("dim", [1, 50, 300_000])
def test_exchange_equals_equation(payload, dim):
    rng = np.random.default_rng(3)
    base = rng.standard_normal(dim).astype(np.float32)
    x = (base + 10.0 ** rng.uniform(-9, 2, (3, dim)) * rng.standard_normal((3, dim))).astype(np.float32)

    def rank(comm):
        codec = PayloadCodec(comm, SchemeOptions(payload=payload))
        right = (comm.rank + 1) % 3
        left = (comm.rank - 1) % 3
        codec.set_base(torch.from_numpy(base))
        codec.prepare(torch.from_numpy(x[comm.rank].copy()))
        return codec.exchange(right, torch.empty(dim), left).numpy(), codec.exchange(
            left, torch.empty(dim), right
        ).numpy()

    q = [rounded((row - base).astype(np.float64), payload) for row in x]
    for r, (left, right) in enumerate(run_threads(3, rank)):
        for found, s in ((left, (r - 1) % 3), (right, (r + 1) % 3)):
            assert (np.abs(found - (x[r] + (q[s] - q[r]))) <= 3e-7 * (np.abs(x[r]) + np.abs(x[s]))).all()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_message_differences_equal_equation(payload):
    """For parameters read by others: the weight times q(theirs - b) - q(ours - b), in several blocks."""
    rng, dim = np.random.default_rng(5), 300_000
    base, ours, theirs = (rng.standard_normal(dim).astype(np.float32) for _ in range(3))

    def rank(comm):
        codec, total = PayloadCodec(comm, SchemeOptions(payload=payload)), torch.ones(dim)
        codec.set_base(torch.from_numpy(base))
        messages = [codec.message(dim) for _ in range(2)]
        codec.pack(torch.from_numpy(theirs), messages[0])
        codec.pack(torch.from_numpy(ours), messages[1])
        codec.add_difference(total, *messages, 0.25)
        return total.numpy()

    q = [
        x.astype(np.float64) if payload == "float32" else rounded((x - base).astype(np.float64), payload)
        for x in (theirs, ours)
    ]
    for total in run_threads(2, rank):
        np.testing.assert_allclose(total, 1 + 0.25 * (q[0] - q[1]), atol=1e-6)


@pytest.mark.parametrize("payload", NARROW)
def test_error_of_sum_over_ranks_is_bounded(payload):
    rng = np.random.default_rng(4)
    base = rng.standard_normal(100)
    moves = rng.standard_normal((5, 100)) * 10.0 ** rng.uniform(-8, 0, 100)
    weights = rng.random(5)
    x = (base + moves).astype(np.float32)

    def rank(comm):
        codec = PayloadCodec(comm, SchemeOptions(payload=payload))
        codec.set_base(torch.from_numpy(base).float())
        return codec.sum(torch.from_numpy(x[comm.rank].copy()), weights[comm.rank], weights.sum()).numpy()

    terms = weights[:, None] * (x - base.astype(np.float32)).astype(np.float64)
    bound = 5 * UNIT[payload] * np.abs(terms).sum(0) + 2.0**-22 * np.abs(x).max(0) * weights.sum()
    for found in run_threads(5, rank):
        assert (np.abs(found - weights @ x.astype(np.float64)) <= bound).all()


class Counting(ThreadComm):
    """Counts the bytes of messages from one rank to another."""

    def start_exchange(self, outgoing, to, incoming, source):
        sent.append(outgoing.numel() * outgoing.element_size())
        return super().start_exchange(outgoing, to, incoming, source)


sent: list[int] = []


@pytest.mark.parametrize(
    "payload, all_reduce, messages",
    [
        ("float32", "auto", 0),
        ("float32", "library", 0),
        ("float32", "ring", 4 * 2 * 30 * 4),
        ("bfloat16", "auto", 4 * 2 * 30 * 2),
        ("float16", "ring", 4 * 2 * 30 * 2),
    ],
)
def test_sums_and_bytes_sent_are_counted(payload, all_reduce, messages):
    """In a ring of 3 ranks, each sends 4/3 of a vector."""

    def rank(comm):
        comm = Counting(comm.rank, comm._board)
        codec = PayloadCodec(comm, SchemeOptions(payload=payload, all_reduce=all_reduce))
        codec.set_base(torch.zeros(60))
        total = codec.sum(torch.arange(60.0), 1.0, 3.0)
        mean = codec.mean(torch.arange(60.0)) if all_reduce != "ring" else total / 3
        return total.numpy(), mean.numpy()

    sent.clear()
    for total, mean in run_threads(3, rank):
        np.testing.assert_allclose(total, 3 * np.arange(60.0), rtol=3 * UNIT[payload])
        np.testing.assert_allclose(
            mean, np.arange(60.0), rtol=3 * UNIT[payload] if all_reduce == "ring" else 1e-7
        )
    assert sum(sent) == messages


@pytest.mark.parametrize("all_reduce", ["auto", "library", "ring"])
def test_mpi_library_sums_on_request(all_reduce):
    comm = SoloComm()
    strategy = make_strategy(comm, mixing_options("d1d", all_reduce=all_reduce))
    assert comm.uses_ring == strategy.codec.comm.uses_ring == (all_reduce != "library")


@pytest.mark.parametrize("payload, message", [("float32", 4000), ("float16", 2002), ("bfloat16", 2002)])
def test_16_bits_take_half_the_time(payload, message):
    """An exchange and an update of 1000 numbers on a network of 1 KB/s. A scale is sent with 16-bit
    numbers."""

    def rank(comm):
        codec, x, other = PayloadCodec(comm, SchemeOptions(payload=payload)), torch.ones(1000), 1 - comm.rank
        codec.set_base(x)
        begin = comm.time()
        codec.prepare(x)
        codec.exchange(other, torch.empty(1000), other)
        exchanged = comm.time()
        codec.send_move(x, 1, 5) if comm.rank == 0 else codec.receive_move(x, 5, 0)
        return exchanged - begin, comm.time() - exchanged

    seconds = run_simulated(2, rank, ClusterNetwork(latency_s=0.0, bandwidth=1000.0))
    np.testing.assert_allclose(seconds, message / 1000, rtol=1e-6)


def test_float32_sums_are_bit_identical_to_plain_sums():
    """Products and sums in rank order, all in float32."""
    for mixed in zip(*run("allreduce", "float32")):
        expected = sum((m.before * np.float32(0.25) for m in mixed[1:]), mixed[0].before * np.float32(0.25))
        assert all(np.array_equal(m.after, expected) for m in mixed)
    for mixed in zip(*run("ring", "float32")):
        for r, m in enumerate(mixed):
            assert m.report.last or np.array_equal(
                m.after, m.before * np.float32(0.5) + mixed[r - 1].before * np.float32(0.5)
            )


@pytest.mark.parametrize("name", ["allreduce", "base2", "d1d", "dpsgd", "easgd", "bmuf"])
def test_resumed_state_gives_same_bits(name):
    """The base is part of the state."""
    options = mixing_of(name, period_frames=20, payload="bfloat16")
    for after in (1, 2):
        assert np.array_equal(
            afters(run(name, "bfloat16", resume=(after, options))), afters(run(name, "bfloat16"))
        )


def test_job_resumes_with_16_bits():
    """Ranks with different parameters have no common base, and agree on one."""
    options = mixing_options("ring", period_frames=20, payload="bfloat16")
    wide, narrow = run("ring", "float32"), run("ring", "float32", resume=(1, options))
    for of_ranks in zip(*narrow):
        before, after = (np.array([mixed[place] for mixed in of_ranks], np.float64) for place in (0, 1))
        assert np.abs(after.mean(0) - before.mean(0)).max() < 2 * 2.0**-24 * 2000
    assert np.abs(afters(wide) - afters(narrow)).max() < 4 * UNIT["bfloat16"]


def test_every_payload_type_is_an_option():
    assert tuple(PAYLOAD_TYPES) == PAYLOADS


def test_mpi_gives_same_bits_as_threads(tmp_path, jobs_import_tests):
    run_ranks(
        JobOptions(),
        tmp_path / "ranks.log",
        f"{over_mpi.__module__}:{over_mpi.__name__}",
        JobOptions(cmd=str(tmp_path)),
        2,
    )
    for name in OVER_MPI:
        options = mixing_of(name, period_frames=20, payload="bfloat16")
        for rank, mixings in enumerate(run_threads(2, lambda comm: train(comm, options))):
            assert np.array_equal(
                np.load(tmp_path / f"rank{rank}.npz")[name], [mixed.after for mixed in mixings]
            ), name
