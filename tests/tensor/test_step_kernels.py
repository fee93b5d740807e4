"""Parts of a step: the plain form against formulas in float64, and Triton's kernels against the plain form in
Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from step_kernel_cases import CASES, NUM_LAYERS, NUM_ROWS, components_of_a_step, make_verdict, to

from pyasr.tensor import step_kernels

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
NAN = float("nan")


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_cross_entropy_and_derivatives_equal_autograd():
    """Values after the classes are ignored. A negative target has no loss and no derivatives."""
    z, targets, num_classes = 3 * random(9, 20), torch.tensor([0, 5, -100, 12, 3, 1, 12, -1, 7]), 13
    z[:, num_classes:] = 1e6
    z[3, 12], z[4, 8] = 20.0, 20.0
    logits, known = z[:, :num_classes].clone().requires_grad_(), targets >= 0
    expected = F.cross_entropy(logits[known], targets[known], reduction="none")
    expected.sum().backward()
    losses, correct = torch.full((9,), NAN, dtype=torch.float64), torch.full((9,), NAN, dtype=torch.float64)
    step_kernels.cross_entropy_(z, targets, num_classes, losses, correct)
    torch.testing.assert_close(losses[known], expected.detach(), rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(z[:, :num_classes], logits.grad, rtol=1e-13, atol=1e-15)
    assert not losses[~known].any() and not z[~known].any() and not z[:, num_classes:].any()
    assert (
        torch.equal(correct.bool(), (logits.argmax(1) == targets) & known)
        and correct[3] == 1
        and correct[4] == 0
    )


def test_residual_and_squares_equal_formula():
    x, ht, w = random(2, 30, 11), random(2, 4, 30, seed=2), random(2, 4, 11, seed=3)
    xhat = torch.full_like(x, NAN)
    squares = step_kernels.residual(x, ht, w, xhat)
    expected = torch.stack([own - h.T @ v for own, h, v in zip(x, ht, w)])
    torch.testing.assert_close(xhat, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        squares.sum(2), torch.stack([x, expected]).square().sum((2, 3)), rtol=1e-13, atol=0
    )


def test_verdict_without_natural_gradient():
    step = components_of_a_step(natural=False, dtype=torch.float64)
    verdict = make_verdict(step)
    step_kernels.judge(verdict, *step)
    assert torch.equal(verdict.factors, torch.full((NUM_LAYERS,), -float(step.rate), dtype=torch.float64))
    assert verdict.counts.tolist() == pytest.approx(
        [float(step.losses.sum()), float(step.correct.sum()), NUM_ROWS]
    )
    assert torch.equal(verdict.nonfinite_counts, torch.arange(NUM_LAYERS + 2))


def test_verdict_with_natural_gradient():
    """g of a layer is that of its input times that of its derivatives. Columns of ones have a square of 1 in
    each row."""
    step = components_of_a_step(natural=True, dtype=torch.float64)
    first, inputs, hidden, output = step.squares
    before, after = (torch.cat([first[i].sum(1), inputs[i].sum(1)]) for i in (0, 1))
    columns = torch.cat(step.columns[:2])[:, 0]
    of_inputs = ((before + NUM_ROWS) / (after + columns.square().sum(1))).sqrt()
    of_outputs = torch.cat([(part[0].sum(1) / part[1].sum(1)).sqrt() for part in (hidden, output)])
    verdict = make_verdict(step)
    step_kernels.judge(verdict, *step)
    torch.testing.assert_close(verdict.factors, -step.rate * of_inputs * of_outputs, rtol=1e-13, atol=0)
    torch.testing.assert_close(torch.cat(verdict.traces[:2]), before + NUM_ROWS, rtol=1e-13, atol=0)
    torch.testing.assert_close(
        torch.cat(verdict.traces[2:]), torch.cat([hidden[0].sum(1), output[0].sum(1)]), rtol=1e-13, atol=0
    )


def test_zero_side_has_factor_1():
    step = components_of_a_step(natural=True, dtype=torch.float64)
    step.squares[2][:, 1] = 0
    verdict, usual = make_verdict(step), make_verdict(step)
    step_kernels.judge(verdict, *step)
    step_kernels.judge(usual, *components_of_a_step(natural=True, dtype=torch.float64))
    assert verdict.factors.all() and torch.equal(
        verdict.factors == usual.factors, torch.tensor([True, False, True, True])
    )


@pytest.mark.parametrize(
    "spoil, parts",
    [
        (lambda step: step.biases[2].__setitem__(3, NAN), [2]),
        (lambda step: step.biases[3].__setitem__(0, float("inf")), [3]),
        (lambda step: step.squares[0].__setitem__((0, 0, 1), NAN), [0]),
        (lambda step: step.squares[1].__setitem__((0, 1, 1), float("inf")), [2]),
        (lambda step: step.squares[3].__setitem__((1, 0, 0), NAN), [3]),
    ],
)
def test_non_finite_gradient_sets_all_factors_to_zero(spoil, parts):
    """One bias or one trace is sufficient. Its component is counted."""
    step = components_of_a_step(natural=True, dtype=torch.float64)
    spoil(step)
    verdict = make_verdict(step)
    step_kernels.judge(verdict, *step)
    counts = torch.arange(NUM_LAYERS + 2)
    counts[parts] += 1
    counts[-2] += 1
    counts[-1] = step.number
    assert not verdict.factors.any() and torch.equal(verdict.nonfinite_counts, counts)
    assert verdict.counts[2] == NUM_ROWS


def test_non_finite_loss_has_zero_counts():
    step = components_of_a_step(natural=False, dtype=torch.float64)
    step.losses[7] = NAN
    verdict = make_verdict(step)
    step_kernels.judge(verdict, *step)
    assert not verdict.counts.any() and verdict.factors.all()


@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16])
def test_descent_updates_parameters_in_place(narrow):
    """For float32 parameters, with which the network may compute directly. A factor of 0 changes nothing, for
    any gradient."""
    master, grad = random(50).float(), random(50, seed=2).to(narrow)
    before, factor = master.clone(), torch.tensor(-0.3)
    work = master if narrow == torch.float32 else torch.zeros(50, dtype=narrow)
    step_kernels.descend(master, grad, work, factor, 0.5)
    assert torch.equal(master, torch.addcmul(before, grad.float(), factor * 0.5)) and torch.equal(
        work, master.to(narrow)
    )
    grad[3], before = NAN, master.clone()
    step_kernels.descend(master, grad, work, torch.tensor(0.0))
    assert torch.equal(master, before) and torch.equal(work, master.to(narrow))


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton, which comes with torch for CUDA, is not installed",
)
def test_kernels_in_interpreter_equal_plain_form():
    """In a separate process, because Triton reads the variable when it is imported."""
    program = Path(__file__).with_name("step_kernel_cases.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == list(CASES)


@GPU
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize("name", CASES)
def test_kernels_on_gpu_equal_plain_form(name, dtype, tolerance):
    from pyasr.tensor import step_triton

    CASES[name](step_triton, dtype, tolerance, "cuda")


@GPU
def test_gpu_uses_kernels():
    assert step_kernels._kernels(to(torch.zeros(1), "cuda")) is step_kernels._triton() is not None
    assert step_kernels._kernels(torch.zeros(1, device="cuda", dtype=torch.float64)) is None
