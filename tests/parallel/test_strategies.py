"""Flat parameters and parameter averaging, against plain numpy."""

import numpy as np
import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.parallel.comm import SoloComm
from pyasr.parallel.threads import run_threads
from pyasr.parallel.flat import ALIGNMENT, FlatParameters
from pyasr.parallel.strategies import MixingOptions, make_strategy, strategy_names


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_model_computes_with_the_flat_buffer(dtype):
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


def test_gradients_arrive_in_the_flat_buffer():
    model, reference = network(), network()
    flat = FlatParameters(model.parameters())
    x = torch.randn(4, 5)
    model(x).square().sum().backward()
    reference(x).square().sum().backward()
    expected = torch.cat([torch.nn.functional.pad(p.grad.flatten(), (0, -p.numel() % ALIGNMENT)) for p in reference.parameters()])
    torch.testing.assert_close(flat.grad, expected)


def averaged(minibatches_by_rank, period):
    """Each rank adds its own noise to its parameters at every minibatch; returns what came of it and the history for the oracle."""

    def rank(comm):
        strategy = make_strategy(comm, MixingOptions(period_frames=period))
        rng = np.random.default_rng(comm.rank)
        master = torch.from_numpy(np.random.default_rng(99).standard_normal(50)).float()
        before, totals = [], []
        todo = list(minibatches_by_rank[comm.rank])
        while True:
            frames = todo.pop(0) if todo else 0
            if frames:
                master += torch.from_numpy(rng.standard_normal(50)).float()
            weight, kept = strategy.since_last + frames, master.clone().numpy()
            mixing = strategy.step(master, frames)
            if mixing:
                before.append((weight, kept, master.clone().numpy()))
                totals.append(mixing.frames)
            if mixing and mixing.frames == 0:
                return master.numpy(), before, totals

    return run_threads(len(minibatches_by_rank), rank)


@pytest.mark.parametrize("minibatches", [
    [[10] * 6, [10] * 6],
    [[10] * 6],
    [[10] * 10, [10] * 10, [10] * 3, []],
    [[7, 7, 2], [10] * 5, [1]],
])  # fmt: skip
def test_average_is_weighted_by_frames_and_uneven_shards_end_together(minibatches):
    results = averaged(minibatches, period=20)
    num_mixings = {len(before) for _, before, _ in results}
    assert len(num_mixings) == 1
    for mixing in range(num_mixings.pop()):
        weights = np.array([before[mixing][0] for _, before, _ in results], np.float64)
        kept = np.stack([before[mixing][1] for _, before, _ in results]).astype(np.float64)
        if weights.sum():
            mean = (weights[:, None] * kept).sum(0) / weights.sum()
            for _, before, _ in results:
                np.testing.assert_allclose(before[mixing][2], mean, atol=1e-6)
    for master, _, totals in results:
        assert sum(totals) == sum(map(sum, minibatches)) and totals[-1] == 0
        np.testing.assert_array_equal(master, results[0][0])


def test_mixing_happens_every_period():
    strategy = make_strategy(SoloComm(), MixingOptions(period_frames=25))
    told = [strategy.step(torch.zeros(3), 10) for _ in range(6)]
    assert [None if mixing is None else mixing.frames for mixing in told] == [None, None, 30, None, None, 30]


def test_one_rank_alone_is_left_as_it_is():
    strategy, master = make_strategy(SoloComm(), MixingOptions(period_frames=1)), torch.rand(9)
    before = master.clone()
    strategy.step(master, 7)
    assert torch.equal(master, before)


def test_unknown_strategy():
    assert "allreduce" in strategy_names()
    with pytest.raises(UserError, match="--strategy 'ring-a': there is no such strategy; choose one of allreduce"):
        make_strategy(SoloComm(), MixingOptions(strategy="ring-a"))
