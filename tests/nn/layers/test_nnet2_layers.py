"""Layers of the nnet2 recipes against plain formulas and finite differences in float64."""

import numpy as np
import pytest
import torch

from pyasr.nn.layers.nnet2_layers import Normalize, PNorm, SumGroup

EXTRAS = torch.tensor([1, 3, 1])
OWNERS = torch.cat([torch.arange(4), EXTRAS])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def finite_differences(function, x, weights, step=1e-6):
    """dF/dx for F = sum(weights * function(x)), by central differences."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            values.append((weights * function(moved)).sum())
        gradient[place] = (values[0] - values[1]) / (2 * step)
    return gradient


def p_norm(x):
    return np.stack([np.sqrt(sum(x[:, i] ** 2 for i in range(j, 12, 4))) for j in range(4)], 1)


def normalised(x):
    return x / np.sqrt(np.maximum(2.0**-66, (x * x).sum(1) / x.shape[1]))[:, None]


def summed(z):
    return np.stack([np.log(np.exp(z[:, OWNERS.numpy() == s]).sum(1)) for s in range(4)], 1)


@pytest.mark.parametrize(
    "layer, formula, width",
    [(PNorm(3), p_norm, 12), (Normalize(), normalised, 8), (SumGroup(EXTRAS), summed, 7)],
)
def test_values_and_gradients_equal_formulas(layer, formula, width):
    x = numbers(5, width)
    at = torch.tensor(x, requires_grad=True)
    y = layer(at)
    np.testing.assert_allclose(y.detach().numpy(), formula(x), rtol=1e-12)
    weights = numbers(*y.shape, seed=1)
    (y * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(at.grad.numpy(), finite_differences(formula, x, weights), atol=1e-8)


@pytest.mark.parametrize("layer, width", [(PNorm(3), 4), (Normalize(), 12), (SumGroup(EXTRAS), 9)])
def test_empty_input_gives_empty_output(layer, width):
    x = torch.zeros(0, 12, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, width) and x.grad.shape == (0, 12)


@pytest.mark.parametrize("layer", [PNorm(3), Normalize()])
def test_zeros_have_finite_gradients(layer):
    x = torch.zeros(2, 12, requires_grad=True)
    layer(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_factor_is_constant_below_floor():
    x = torch.full((1, 4), 2.0**-40, dtype=torch.float64, requires_grad=True)
    y = Normalize()(x)
    y.sum().backward()
    assert torch.equal(y, torch.full((1, 4), 2.0**-7, dtype=torch.float64)) and torch.equal(
        x.grad, torch.full_like(x, 2.0**33)
    )


@pytest.mark.parametrize("layer, width", [(PNorm(10), 200), (Normalize(), 200)])
def test_bfloat16_equals_rounded_result(layer, width):
    x = torch.tensor(numbers(64, width)).bfloat16()
    narrow, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    for at in (narrow, wide):
        layer(at).square().sum().backward()
    torch.testing.assert_close(layer(x).double(), layer(x.double()), rtol=0.02, atol=0.02)
    torch.testing.assert_close(narrow.grad.double(), wide.grad, rtol=0.05, atol=0.05)


def test_sum_of_groups_does_not_overflow():
    z = torch.tensor([[1000.0, -1000.0, 1000.0]], requires_grad=True)
    u = SumGroup(torch.tensor([0]))(z)
    torch.testing.assert_close(u.detach(), torch.tensor([[1000 + np.log(2), -1000.0]], dtype=torch.float32))
    u.sum().backward()
    torch.testing.assert_close(z.grad, torch.tensor([[0.5, 1.0, 0.5]]), atol=1e-4, rtol=0)


def test_softmax_of_group_sums_equals_summed_softmax():
    z = torch.tensor(numbers(6, 7))
    expected = torch.zeros(6, 4, dtype=z.dtype).index_add_(1, OWNERS, z.softmax(1))
    torch.testing.assert_close(SumGroup(EXTRAS)(z).softmax(1), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
@pytest.mark.parametrize("layer, width", [(PNorm(3), 12), (Normalize(), 8), (SumGroup(EXTRAS), 7)])
def test_gpu_equals_cpu(layer, width):
    x = torch.tensor(numbers(50, width))
    results = []
    for device in ("cpu", "cuda"):
        at = x.to(device, copy=True).requires_grad_()  # a leaf on either device
        layer.to(device)(at).square().sum().backward()
        results.append(at.grad.cpu())
    torch.testing.assert_close(*results)
