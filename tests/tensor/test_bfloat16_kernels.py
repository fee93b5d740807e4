"""Loops over bfloat16 against torch's own arithmetic and rounding, with ties, infinities and the smallest
numbers."""

import pytest
import torch

from pyasr.tensor.bfloat16_kernels import descend, subtract_from


def matrix(seed, rows=50, columns=70):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).bfloat16()


def test_difference_and_squares_equal_torch():
    x, y = matrix(1), matrix(2)
    x[0, :4] = torch.tensor([0.0, 1e-39, 1.0, 1.0])
    y[0, :4] = torch.tensor([-0.0, 3e-39, 2**-9, 3 * 2**-9])  # the last two are halfway between two numbers
    rest = x.float() - y.float()
    squares = [float(part.double().square().sum()) for part in (x, rest)]
    assert subtract_from(x, y) == pytest.approx(squares, rel=1e-6)
    assert torch.equal(y, rest.bfloat16())


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_non_finite_values_stay_non_finite(bad):
    x, y = matrix(1), matrix(2)
    x[3, 5] = bad
    squares = subtract_from(x, y)
    assert (
        not any(map(torch.isfinite, torch.tensor(squares)))
        and not y[3, 5].isfinite()
        and y.isfinite().sum() == y.numel() - 1
    )


def test_descent_works_in_place():
    """`FlatParameters` is tested with all kinds of numbers; this test checks the update in place."""
    master = torch.tensor([1.0, 2.0])
    grad = torch.tensor([1.0, -1.0]).bfloat16()
    work = torch.zeros(2).bfloat16()
    descend(master, grad, work, 0.25)
    assert master.tolist() == work.tolist() == [1.25, 1.75] and not grad.any()
