"""Minibatches of contrastive divergence: updates compared with the formulas in float64, momentum, explosions,
state."""

import numpy as np
import pytest
import torch

from pyasr.nn.networks.dbn import Below
from pyasr.nn.networks.rbm import Rbm
from pyasr.tensor.random_bits import random_integers
from pyasr.train.compute import ComputeOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.sgd.rbm_learner import MomentumOptions, MomentumSchedule, RbmLearner, ReconstructionTotals

L2, RATE, NUM = 0.05, 0.004, 20


def make_learner(gaussian, dims=(7, 5), precision="float32", stddev=0.3, rbms=(), minibatch=NUM):
    torch.manual_seed(1)
    rbm = Rbm(*dims, gaussian)
    for parameter in rbm.parameters():
        parameter.normal_(0, stddev)
    options = ComputeOptions(minibatch=minibatch, precision=precision, device="cpu")
    below = Below(list(rbms), torch.device("cpu"), options.torch_dtype())
    learner = RbmLearner(rbm, below, options, L2, torch.Generator().manual_seed(4))
    learner.momentum = 0.9
    return learner


def minibatches(num, dim, gaussian, rows=NUM, seed=3):
    torch.manual_seed(seed)
    return [torch.randn(rows, dim) if gaussian else (torch.rand(rows, dim) < 0.3).float() for _ in range(num)]


def logistic(x):
    return 1 / (1 + np.exp(-x))


def trained_by_formula(learner, data, rates, momenta, gaussian):
    """W, b, a after CD-1 on the minibatches `data`, in float64 with the learner's random bits: dW <- m dW + a
    (H+'V - H-'V- - N c W)."""
    W, b, a = (value.double().numpy().copy() for value in learner.flat.values())
    moves = [np.zeros_like(W), np.zeros_like(b), np.zeros_like(a)]
    generator = torch.Generator().manual_seed(4)
    for v, rate, momentum in zip(data, rates, momenta):
        v = v.double().numpy()
        up = logistic(v @ W.T + b)
        bits = (
            random_integers(torch.Size(up.shape), torch.int16, torch.device("cpu"), generator)
            .double()
            .numpy()
        )
        down = ((bits + 32768.5) / 65536 < up) @ W + a
        down = down if gaussian else logistic(down)
        again = logistic(down @ W.T + b)
        gradients = up.T @ v - again.T @ down - len(v) * L2 * W, (up - again).sum(0), (v - down).sum(0)
        moves = [momentum * move + rate * gradient for move, gradient in zip(moves, gradients)]
        W, b, a = W + moves[0], b + moves[1], a + moves[2]
    return W, b, a


@pytest.mark.parametrize("gaussian", [True, False])
def test_updates_equal_formula(gaussian):
    """Over five minibatches of which the last is shorter, while the momentum rises."""
    learner = make_learner(gaussian)
    data = minibatches(5, 7, gaussian)
    data[-1] = data[-1][:9]
    momenta = [0.0, 0.5, 0.6, 0.6, 0.75]
    rates = [RATE * (1 - m) for m in momenta]
    expected = trained_by_formula(learner, data, rates, momenta, gaussian)
    for v, rate, learner.momentum in zip(data, rates, momenta):
        learner.step(v, None, rate)
        learner.flat.refresh()
    for found, value in zip(learner.flat.values(), expected):
        np.testing.assert_allclose(found.numpy(), value, atol=2e-6)


@pytest.mark.parametrize("gaussian", [True, False])
def test_bfloat16_is_close_to_float32(gaussian):
    """Except for a few samples on the other side of a rounded probability."""
    changes = []
    for precision in ("float32", "bfloat16"):
        learner = make_learner(gaussian, (60, 40), precision, 0.1)
        before = learner.flat.master.clone()
        for v in minibatches(10, 60, gaussian, 100):
            learner.step(v.to(learner.flat.work.dtype), None, 0.001)
            learner.flat.refresh()
        changes.append(learner.flat.master - before)
    assert (changes[0] - changes[1]).norm() < 0.1 * changes[0].norm()


def test_momentum_increases_in_40_steps():
    momentum = MomentumOptions()
    frames = [0, 499_999, 500_000, 10_000_000, 19_999_999, 20_000_000, 10**9]
    np.testing.assert_allclose([momentum.scheduled(n) for n in frames], [0.5, 0.5, 0.51, 0.7, 0.89, 0.9, 0.9])
    np.testing.assert_allclose([momentum.applied(n) for n in frames], 0.9)
    assert [MomentumOptions(with_bug=False).applied(n) for n in frames] == [
        momentum.scheduled(n) for n in frames
    ]
    schedule = MomentumSchedule(ScheduleOptions(learning_rate=0.4, num_epochs=2), 1000, momentum)
    np.testing.assert_allclose([schedule.rate(n) for n in frames], [0.2, 0.2, 0.196, 0.12, 0.044, 0.04, 0.04])
    assert schedule.end_epoch(1.0, 0.0) and not schedule.finished
    assert schedule.end_epoch(2.0, 0.0) and schedule.finished


def test_explosion_shrinks_rbm_and_skips_minibatch():
    learner = make_learner(True, stddev=0.05)
    v = minibatches(1, 7, True)[0]
    assert learner.step(v, None, 1e-3)[1] == 0 and learner.velocity.any()
    learner.rbm.weight.mul_(100)
    W, b, a = (value.clone() for value in learner.flat.values())
    error, explosions, frames = learner.step(v, None, 1e-3).tolist()
    assert explosions == 1 and frames == NUM and error > 10 * NUM
    W_after, b_after, a_after = learner.flat.values()
    ratio = W_after[0, 0] / W[0, 0]
    assert 0 < ratio < 0.5
    torch.testing.assert_close(W_after, ratio * W)
    torch.testing.assert_close(b_after, ratio * b)
    assert torch.equal(a_after, a) and not learner.velocity.any()
    assert learner.rate_scale.item() == pytest.approx(0.9)


def test_few_silent_frames_do_not_shrink_rbm():
    """In the last, short minibatch of an epoch. In a full minibatch, the same frames count as an
    explosion."""
    learner = make_learner(True, (40, 30), stddev=0.3)
    torch.manual_seed(6)
    silence, before = 0.3 * torch.randn(1, 40), learner.flat.master.clone()
    for num in (1, 2, 3, 15):
        for noise in (0.0, 0.1):
            assert learner.step(silence + noise * torch.randn(num, 40), None, 1e-5)[1] == 0
    assert learner.step(silence.expand(NUM, -1), None, 1e-5)[1] == 0
    assert (learner.flat.master - before).norm() < 0.05 * before.norm() and learner.rate_scale == 1
    assert learner.step(silence + 0.1 * torch.randn(NUM, 40), None, 1e-5)[1] == 1


@pytest.mark.parametrize(
    "minibatch, num, explosion",
    [(100, 49, False), (100, 50, True), (20, 15, False), (20, 16, True), (3, 3, False)],
)
def test_explosion_needs_half_a_minibatch(minibatch, num, explosion):
    learner = make_learner(True, stddev=5.0, minibatch=minibatch)
    assert learner.step(minibatches(1, 7, True, num)[0], None, 1e-5)[1] == explosion


@pytest.mark.parametrize("gaussian", [True, False])
def test_non_finite_reconstruction_is_skipped_and_counted(gaussian):
    learner = make_learner(gaussian)
    v = minibatches(1, 7, gaussian)[0]
    learner.step(v, None, 1e-3)
    assert learner.velocity.any() and learner.nonfinite_guard.take() == (0, [], 0)
    broken = v.clone()
    broken[3, 2] = 1e30 if gaussian else float("nan")
    before = learner.flat.master.clone()
    assert learner.step(broken, None, 1e-3).tolist() == [0, 0, 0]
    assert torch.equal(learner.flat.master, before) and not learner.velocity.any()
    assert learner.nonfinite_guard.take() == (1, ["the machine"], 2) and learner.nonfinite_guard.take() == (
        0,
        [],
        0,
    )
    assert learner.step(v, None, 1e-3)[2] == NUM and learner.flat.master.isfinite().all()


def test_rate_is_lower_after_explosion():
    changes = []
    for scale in (1.0, 0.9):
        learner = make_learner(True, stddev=0.05)
        learner.rate_scale.fill_(scale)
        before = learner.flat.master.clone()
        learner.step(minibatches(1, 7, True)[0], None, 1e-3)
        changes.append(learner.flat.master - before)
    torch.testing.assert_close(changes[1], 0.9 * changes[0], rtol=1e-4, atol=1e-9)


def test_rbm_recovers_from_explosions_and_learns():
    """From initial weights a hundred times too large, on data of rank two."""
    learner = make_learner(True, (20, 16), stddev=5.0)
    torch.manual_seed(5)
    basis = torch.randn(2, 20)
    errors, explosions = [], 0.0
    for _ in range(1500):
        v = torch.randn(100, 2) @ basis + 0.1 * torch.randn(100, 20)
        sums = learner.step(v / v.std(), None, 1e-5)
        errors.append(sums[0].item() / 100)
        explosions += sums[1].item()
    assert explosions >= 1 and errors[0] > 100
    assert np.mean(errors[-50:]) < 0.5 and learner.step(v / v.std(), None, 1e-5)[1] == 0


def test_upper_rbm_learns_from_hidden_units_below():
    lower = Rbm(6, 7, True)
    lower.initialise(1.0, torch.Generator().manual_seed(9))
    x = minibatches(1, 6, True)[0]
    alone, stacked = make_learner(False), make_learner(False, rbms=[lower])
    alone.step(torch.sigmoid(x @ lower.weight.T + lower.hidden_bias), None, 1e-3)
    stacked.step(x, None, 1e-3)
    torch.testing.assert_close(stacked.flat.master, alone.flat.master)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_resumed_state_gives_same_bits(precision):
    data = [v.to(getattr(torch, precision)) for v in minibatches(6, 7, True)]
    whole = make_learner(True, precision=precision)
    for v in data[:3]:
        whole.step(v, None, 1e-3)
        whole.flat.refresh()
    second = make_learner(True, precision=precision)
    second.flat.master.copy_(whole.flat.master)
    second.flat.refresh()
    second.load_state_dict(whole.state_dict())
    for learner in (whole, second):
        for v in data[3:]:
            learner.step(v, None, 1e-3)
            learner.flat.refresh()
    assert torch.equal(whole.flat.master, second.flat.master)


def test_state_moves_between_device_kinds():
    """The learner keeps its own samples, because the state of a GPU's generator is not valid on a CPU."""
    learner, second = make_learner(True), make_learner(True)
    learner.step(minibatches(1, 7, True)[0], None, 1e-3)
    own = second.generator.get_state()
    second.load_state_dict(learner.state_dict() | {"generator": torch.zeros(16, dtype=torch.uint8)})
    assert torch.equal(second.velocity, learner.velocity) and torch.equal(second.generator.get_state(), own)


def test_evaluation_is_repeatable_and_changes_nothing():
    learner, v = make_learner(True), minibatches(1, 7, True)[0]
    before, state = learner.flat.master.clone(), learner.generator.get_state()
    results = [learner.evaluate(v, None) for _ in range(2)]
    assert torch.equal(*results) and results[0][2] == NUM
    assert torch.equal(learner.flat.master, before) and torch.equal(learner.generator.get_state(), state)


def test_totals_of_sums():
    totals = ReconstructionTotals(np.array([30.0, 2.0, 120.0]))
    assert totals.text() == "reconstruction error 0.2500  2 explosions" and totals.objective == -0.25
    assert totals.metrics() == {"reconstruction_error": 0.25, "explosions": 2}
    assert ReconstructionTotals(np.array([30.0, 0.0, 120.0])).text() == "reconstruction error 0.2500"
    assert (
        ReconstructionTotals(np.zeros(3)).text() == "no frames"
        and ReconstructionTotals(np.zeros(3)).metrics() == {}
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: device and host cannot be compared")
@pytest.mark.parametrize("gaussian", [True, False])
def test_gpu_equals_cpu_without_waiting(monkeypatch, gaussian):
    """Samples are replaced by thresholds, so that they depend only on the probabilities."""
    monkeypatch.setattr(
        "pyasr.nn.networks.rbm.sample_bernoulli",
        lambda p, _: (p > torch.linspace(0.1, 0.9, p.shape[1], device=p.device)).to(p.dtype),
    )
    host, masters = make_learner(gaussian), []
    for device in ("cpu", "cuda"):
        rbm = Rbm(7, 5, gaussian)
        rbm.load_state_dict(make_learner(gaussian).rbm.state_dict())
        options = ComputeOptions(minibatch=NUM, precision="float32", device=device)
        learner = RbmLearner(rbm, host.below, options, L2, torch.Generator(device))
        learner.momentum = 0.9
        data = [v.to(device) for v in minibatches(5, 7, gaussian)]
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        for v in data:
            learner.step(v, None, 1e-3)
            learner.flat.refresh()
        torch.cuda.set_sync_debug_mode("default")
        masters.append(learner.flat.master.cpu())
    torch.testing.assert_close(*masters, rtol=1e-3, atol=1e-4)
