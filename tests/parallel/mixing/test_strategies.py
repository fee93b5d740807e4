"""Flat parameters and parameter averaging, against plain numpy."""

from functools import partial

import numpy as np
import pytest
import torch
from scheme_toys import mixing_of
from uneven_shards import check_minibatches_of_any_size

from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.mixing.flat import ALIGNMENT, FlatParameters
from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options, strategy_names
from pyasr.parallel.topology.topologies import TOPOLOGIES, matrix


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_model_computes_with_flat_buffer(dtype):
    model, reference = network(), network()
    flat = FlatParameters(model.parameters(), dtype)
    x = torch.randn(4, 5)
    tolerance = 1e-6 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(model(x.to(dtype)).float(), reference(x), atol=tolerance, rtol=tolerance)
    for value, original in zip(flat.values(), reference.parameters()):
        assert torch.equal(value, original)
        assert value.storage_offset() % ALIGNMENT == 0
    flat.master.mul_(0)
    flat.refresh()
    assert torch.equal(model(x.to(dtype)), torch.zeros(4, 3, dtype=dtype))
    assert flat.num_parameters == 5 * 7 + 7 + 7 * 3 + 3


def test_gradients_are_views_of_flat_buffer():
    model, reference = network(), network()
    flat = FlatParameters(model.parameters())
    x = torch.randn(4, 5)
    model(x).square().sum().backward()
    reference(x).square().sum().backward()
    expected = torch.cat(
        [
            torch.nn.functional.pad(p.grad.flatten(), (0, -p.numel() % ALIGNMENT))
            for p in reference.parameters()
        ]
    )
    torch.testing.assert_close(flat.grad, expected)


def mixed(minibatches_by_rank, options, minibatch=10):
    """Each rank adds its own noise to its parameters at every minibatch. Returns, for each mixing, (frames
    since the last one, parameters before, after, its result)."""

    def rank(comm):
        strategy, rng = make_strategy(comm, options), np.random.default_rng(comm.rank)
        master = torch.from_numpy(np.random.default_rng(99).standard_normal(50)).float()
        todo, report, frames_since = list(minibatches_by_rank[comm.rank]), [], 0
        strategy.restart(master)
        strategy.begin_epoch(sum(todo), minibatch)
        while True:
            frames = todo.pop(0) if todo else 0
            if frames:
                master += torch.from_numpy(rng.standard_normal(50)).float()
            frames_since, before = frames_since + frames, master.clone()
            mixing = strategy.step(master, frames)
            if mixing:
                report.append((frames_since, before.double().numpy(), master.double().numpy(), mixing))
                frames_since = 0
            if mixing and mixing.last:
                return report

    return list(
        zip(*run_threads(len(minibatches_by_rank), rank), strict=True)
    )  # indexed by mixing, then rank


SHARDS = [[[10] * 6, [10] * 6], [[10] * 6], [[10] * 10, [10] * 10, [10] * 3, []], [[7, 7, 2], [10] * 5, [1]]]


@pytest.mark.parametrize("minibatches", SHARDS)
def test_average_is_weighted_by_frames_with_uneven_shards(minibatches):
    mixings = mixed(minibatches, mixing_options(period_frames=20))
    assert [of_ranks[0][3].last for of_ranks in mixings] == [False] * (len(mixings) - 1) + [True]
    for of_ranks in mixings:
        weights = np.array([frames for frames, *_ in of_ranks], np.float64)
        mean = (weights[:, None] * np.stack([before for _, before, _, _ in of_ranks])).sum(0) / weights.sum()
        for _, _, after, message in of_ranks:
            np.testing.assert_allclose(after, mean, atol=1e-6)
            assert message.frames == weights.sum() and message.equal
    assert sum(of_ranks[0][3].frames for of_ranks in mixings) == sum(map(sum, minibatches))


def test_mixing_period_is_in_whole_minibatches():
    for period, expected in ((25, [None, None, 30] * 2), (1, [10] * 6)):
        strategy = make_strategy(SoloComm(), mixing_options(period_frames=period))
        strategy.begin_epoch(60, 10)
        report = [strategy.step(torch.zeros(3), 10) for _ in range(6)]
        assert [mixing and mixing.frames for mixing in report] == expected
        assert [mixing.last for mixing in report if mixing] == [False] * (
            len([x for x in expected if x]) - 1
        ) + [True]


def test_single_rank_is_unchanged():
    for name in strategy_names():
        strategy, master = make_strategy(SoloComm(), mixing_of(name, period_frames=1)), torch.rand(9)
        before = master.clone()
        strategy.restart(master)
        strategy.begin_epoch(21, 7)
        report = [strategy.step(master, 7) for _ in range(3)]
        assert [mixing is not None and mixing.last for mixing in report] == [False, False, True]
        assert torch.equal(master, before)


@pytest.mark.parametrize("name", sorted(set(TOPOLOGIES) - {"complete"}))
@pytest.mark.parametrize("minibatches", SHARDS)
def test_gossip_equals_its_matrices_and_ends_with_mean(name, minibatches):
    topology, size = TOPOLOGIES[name], len(minibatches)
    if topology.power_of_two and size & (size - 1):
        return
    for k, of_ranks in enumerate(mixed(minibatches, mixing_options(name, period_frames=10))):
        before, after = (np.stack([of_rank[place] for of_rank in of_ranks]) for place in (1, 2))
        report = of_ranks[0][3]
        w = np.full((size, size), 1 / size) if report.last else matrix(topology.round(size, k))
        np.testing.assert_allclose(after, w @ before, atol=1e-6)
        np.testing.assert_allclose(after.mean(0), before.mean(0), atol=1e-6)
        assert report.equal == (report.last or size == 1)
        assert not report.equal or (after == after[0]).all()


def test_job_resumes_within_epoch():
    """The state has the position in the epoch and the next round of the topology."""

    def rank(comm):
        options = mixing_options("exponential", period_frames=10)
        first, second = make_strategy(comm, options), make_strategy(comm, options)
        master, twin = torch.full((4,), float(comm.rank)), None
        first.begin_epoch(60, 10)
        for step in range(6):
            master += comm.rank * step
            mixing = first.step(master, 10)
            if twin is not None:
                twin += comm.rank * step
                assert second.step(twin, 10) == mixing and torch.equal(twin, master)
            if step == 2:
                second.begin_epoch(60, 10)
                second.load_state_dict(first.state_dict())
                twin = master.clone()
        return mixing.last

    assert run_threads(4, rank) == [True] * 4


def test_drift_is_distance_from_mixture():
    def rank(comm):
        strategy = make_strategy(comm, mixing_options(period_frames=10))
        master = torch.tensor([3.0, 4.0 + [-1, 1][comm.rank]])
        strategy.begin_epoch(30, 10)
        strategy.step(master, 10)
        master += comm.rank
        strategy.step(master, 10)
        return strategy.drift

    assert run_threads(2, rank) == [pytest.approx(1 / 5)] * 2


@pytest.mark.parametrize(
    "run",
    [run_threads, partial(run_simulated, network=ClusterNetwork(1e-3, 1e6))],
    ids=["threads", "simulated"],
)
def test_gradients_of_minibatches_with_any_size(run):
    """On threads; tests/parallel/communication/test_comm.py has real ranks."""
    run(5, check_minibatches_of_any_size)


def test_unknown_scheme_is_refused():
    assert "allreduce" in strategy_names()
    with pytest.raises(
        UserError, match="--parallel 'telepathy': no such scheme; choose one of .*allreduce, "
    ):
        make_strategy(SoloComm(), mixing_options("telepathy"))
