"""Steps towards semi-orthogonal matrices, against explicit formulas, and their use by learners."""

import pytest
import torch
from torch import nn

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.layers.semi_orthogonal import (
    PERIOD,
    approach_semi_orthogonal,
    draw_semi_orthogonal,
    semi_orthogonal_weights,
)
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.train.sgd.learner import Learner, LearnerOptions

LINES = [
    "tdnn splice=-1..1 dim=16",
    "tdnnf dim=16 bottleneck-dim=6",
    "linear dim=5 semi-orthogonal=true",
    "affine dim=16",
]


def random(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix(rows: int, columns: int, spread: float, dtype=torch.float64) -> torch.Tensor:
    """3 times a matrix with singular values between 1 - spread and 1 + spread."""
    m = torch.empty(rows, columns, dtype=torch.float64)
    nn.init.orthogonal_(m, generator=random())
    u, s, v = torch.linalg.svd(m, full_matrices=False)
    return (3 * u * torch.linspace(1 - spread, 1 + spread, len(s), dtype=torch.float64) @ v).to(dtype)


def by_formula(m: torch.Tensor) -> torch.Tensor:
    """Equations of the paper and Kaldi's rule for nu, elementwise."""
    if m.shape[0] > m.shape[1]:
        return by_formula(m.T).T
    p = torch.einsum("ik,jk->ij", m, m)
    trace, trace_of_square = sum(p[i, i] for i in range(len(p))), sum((p @ p.T)[i, i] for i in range(len(p)))
    alpha2, ratio, nu = trace_of_square / trace, trace_of_square * len(p) / trace**2, 1 / 8
    if ratio > 1.02:
        nu /= 2
        if ratio > 1.1:
            nu /= 2
    return m - 4 * nu / alpha2 * (p - alpha2 * torch.eye(len(p), dtype=m.dtype)) @ m


def ratio(m: torch.Tensor) -> float:
    """1 if m is semi-orthogonal with any scale."""
    squares = torch.linalg.svdvals(m.double()).square()
    return float(squares.square().mean() / squares.mean().square())


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (7, 7), (1, 9)])
@pytest.mark.parametrize("spread", [0.01, 0.1, 0.25, 0.9])
def test_step_equals_formula_of_paper(shape, spread):
    """For each of the three step sizes."""
    m = matrix(*shape, spread)
    expected = by_formula(m)
    approach_semi_orthogonal(m)
    torch.testing.assert_close(m, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype, precision", [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_steps_converge_and_keep_scale(shape, dtype, precision):
    m = matrix(*shape, 0.9, dtype)
    length = m.norm()
    for _ in range(60):
        approach_semi_orthogonal(m)
    p = m @ m.T if len(m) < m.shape[1] else m.T @ m
    scale = p.diagonal().mean()
    torch.testing.assert_close(p / scale, torch.eye(6, dtype=dtype), rtol=0, atol=10 * precision)
    assert float(m.norm() / length) == pytest.approx(1, abs=0.2)


def test_convergence_is_quadratic():
    m = matrix(6, 20, 0.01)
    errors = []
    for _ in range(3):
        errors.append(ratio(m) - 1)
        approach_semi_orthogonal(m)
    assert errors[1] < 10 * errors[0] ** 2 and errors[2] < 1e-14


@pytest.mark.parametrize("value", [0.0, 1e-20])
def test_zero_matrices_stay_finite(value):
    m = torch.full((3, 8), value)
    approach_semi_orthogonal(m)
    assert m.isfinite().all()


@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_initial_matrices_are_semi_orthogonal(shape):
    m = torch.empty(shape)
    draw_semi_orthogonal(m, random())
    p = m @ m.T if len(m) < shape[1] else m.T @ m
    torch.testing.assert_close(p, torch.eye(6))


def learner_of(**options) -> Learner:
    network = LayeredNetwork(LINES, 4, 7)
    network.initialise(random())
    nn.init.normal_(network.output.weight, generator=random(2))
    online = NaturalGradientOptions(natural_gradient="online", ng_rank_in=2, ng_rank_out=2)
    return Learner(
        network,
        LearnerOptions(
            **{
                "device": "cpu",
                "precision": "float32",
                "natural_gradient": online,
                "max_change": 0.1,
                **options,
            }
        ),
    )


def train(learner: Learner, num_steps: int, rate: float = 0.01, seed: int = 3) -> Learner:
    generator = random(seed)
    for _ in range(num_steps):
        x = torch.randn(3, 12 + learner.network.left + learner.network.right, 4, generator=generator).to(
            learner.flat.work.dtype
        )
        learner.step(x, torch.randint(7, (3, 12), generator=generator), rate)
    return learner


def ratios(learner: Learner) -> list[float]:
    return [ratio(learner.flat.values()[place]) for place in learner.semi_orthogonal]


def test_constrained_matrices_are_listed():
    network = TwoOutputs(LayeredNetwork(LINES, 4, 7), 0.1)
    names = [name for name, _ in network.named_parameters()]
    found = [names[place] for place in semi_orthogonal_weights(network)]
    assert found == ["main.layers.1.linear.weight", "main.layers.2.others.0.weight"]
    assert not semi_orthogonal_weights(LayeredNetwork(["tdnn dim=4"], 4, 7))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_step_is_taken_every_fourth_minibatch(precision):
    """Only constrained matrices take a step, and the model has the new values."""
    plain = learner_of(precision=precision)
    plain.semi_orthogonal = []
    before, learner = train(plain, PERIOD - 1), train(learner_of(precision=precision), PERIOD - 1)
    assert torch.equal(learner.flat.master, before.flat.master) and min(ratios(learner)) > 1 + 1e-6
    train(plain, 1, seed=4), train(learner, 1, seed=4)
    assert torch.equal(learner.flat.work, learner.flat.master.to(learner.flat.work.dtype))
    for place, (ours, theirs) in enumerate(zip(learner.flat.values(), plain.flat.values())):
        if place in learner.semi_orthogonal:
            assert ratio(ours) - 1 < 0.1 * (ratio(theirs) - 1)
            approach_semi_orthogonal(theirs)
        assert torch.equal(ours, theirs)


def test_matrices_stay_semi_orthogonal_during_training():
    learner = learner_of()
    before = [learner.flat.values()[place].clone() for place in learner.semi_orthogonal]
    train(learner, 10 * PERIOD)
    assert max(ratios(learner)) < 1.001
    assert all(
        (learner.flat.values()[place] - m).norm() > 0.05 * m.norm()
        for place, m in zip(learner.semi_orthogonal, before)
    )


def test_averaging_is_followed_by_a_step():
    """Two learners whose parameters differ."""
    learner = train(learner_of(max_change=0.5), 10 * PERIOD)
    other = train(learner_of(max_change=0.5), 10 * PERIOD, seed=4)
    learner.flat.master.add_(other.flat.master).div_(2)
    learner.flat.refresh()
    assert max(ratios(learner)) > 1.0001
    train(learner, 6 * PERIOD, rate=1e-6)
    assert max(ratios(learner)) < 1 + 1e-6


def test_skipped_minibatch_is_counted():
    """Then learners whose gradients are summed take their steps at the same minibatches."""
    learner = train(learner_of(), PERIOD - 1)
    x = torch.full((1, 3 + learner.network.left + learner.network.right, 4), float("nan"))
    before = ratios(learner)
    learner.step(x, torch.zeros(1, 3, dtype=torch.int64), 0.01)
    assert learner.flat.master.isfinite().all() and max(ratios(learner)) - 1 < 0.1 * (max(before) - 1)
