"""The online form against a transcription of its equations in float64, on data that exercise each clause; the
floor of the simple form."""

import numpy as np
import pytest
import torch
from natural_gradient_by_formula import ByFormula

from pyasr.nn.layers.natural_gradient import (
    OnlineNaturalGradient,
    orthogonalise,
    precondition_within_minibatch,
    smoothed,
)

DIM, RANK = 12, 5
GRADED, FLAT, THIN = np.logspace(0, -1, DIM), np.linspace(1, 0.9, DIM), np.r_[1, 0.5, np.full(DIM - 2, 1e-3)]


def minibatches(num, rows, spectrum, scale=1.0):
    """Gaussian, with standard deviations `spectrum` along some axes."""
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] * spectrum
    return [scale * rng.standard_normal((rows, DIM)) @ axes.T for _ in range(num)]


def check_equal(module: OnlineNaturalGradient, formula: ByFormula, tolerance):
    np.testing.assert_allclose(module.eigenvalues.numpy(), np.append(formula.d, formula.rho), rtol=tolerance)
    factor, expected = module.factor.double().numpy(), formula.W
    assert np.linalg.norm(factor.T @ factor - expected.T @ expected) < 100 * tolerance * np.linalg.norm(
        expected.T @ expected
    )


@pytest.mark.parametrize(
    "data, clause",
    [
        (minibatches(25, 40, GRADED), None),
        (minibatches(25, 5, GRADED), None),
        (minibatches(3, 5000, GRADED), "capped"),
        (minibatches(14, 2000, THIN), "rho floored"),
        (minibatches(14, 2000, np.r_[1, 0.5, np.zeros(DIM - 2)]), "rho floored"),
        (minibatches(12, 40, GRADED, scale=1e-4), "d floored"),
        (minibatches(12, 40, GRADED, scale=1e-6), "rho floored"),
    ],
    ids=[
        "plain",
        "as many rows as rank",
        "more than 4605 rows",
        "nearly singular",
        "singular",
        "small",
        "tiny",
    ],
)
def test_equals_formula(data, clause):
    """Output, eigenvalues and W, from the first minibatch on."""
    formula, module, clauses = ByFormula(RANK), OnlineNaturalGradient(RANK), set()
    for x in data:
        expected, (xhat, scale) = formula.precondition(x), module.precondition(torch.from_numpy(x))
        clauses |= formula.clauses
        assert np.linalg.norm(scale * xhat.numpy() - expected) < 1e-7 * np.linalg.norm(expected)
        check_equal(module, formula, 1e-6)
    assert clause is None or clause in clauses


@pytest.mark.parametrize("history", [4.0, 1.0])
def test_sequence_of_minibatches_equals_formula(history):
    """With any numbers of rows; the weight of one minibatch is limited."""
    formula = ByFormula(RANK, 1, history)
    module = OnlineNaturalGradient(RANK, update_period=1, num_minibatches_history=history)
    for i, x in enumerate(minibatches(20, 400, GRADED)):
        x = x[: 40 * (1 + i % 3)]
        expected, (xhat, scale) = formula.precondition(x), module.precondition(torch.from_numpy(x))
        assert np.linalg.norm(scale * xhat.numpy() - expected) < 1e-7 * np.linalg.norm(expected)
    check_equal(module, formula, 1e-6)


def after_losing_orthogonality(factor):
    """(formula, module) after some minibatches, then W times a factor, then an update with frames along one
    line and a little noise."""
    formula, module = ByFormula(RANK), OnlineNaturalGradient(RANK)
    *first, last = minibatches(8, 400, np.logspace(0, -0.7, DIM))
    for x in first:
        formula.precondition(x), module.precondition(torch.from_numpy(x))
    last = 0.05 * last + 0.7 * np.random.default_rng(2).standard_normal((400, 1))
    formula.W, module.factor = factor * formula.W, factor * module.factor
    module._copies = None
    formula.precondition(last), module.precondition(torch.from_numpy(last))
    return formula, module


@pytest.mark.parametrize(
    "factor, clauses",
    [
        (1.5, set()),
        (5.7, {"c floored", "cholesky", "rho floored"}),
        (10, {"c floored", "cholesky", "rho floored"}),
    ],
    ids=["none is low", "a low eigenvalue", "a negative one"],
)
def test_eigenvalues_of_z_have_a_floor(factor, clauses):
    """With orthonormal rows, no eigenvalue is below the floor, ((1 - eta) rho)^2. Here, the rows are no
    longer orthonormal."""
    formula, module = after_losing_orthogonality(factor)
    assert formula.clauses == clauses
    check_equal(module, formula, 1e-9)


def test_eigenvalue_below_floor_triggers_orthogonalisation():
    """It is far above a millionth of the largest one."""
    formula, module = after_losing_orthogonality(5.7)
    assert formula.c[0] / 1e6 < formula.c[-1] < formula.lowest
    rows = module.factor / smoothed(module.eigenvalues, 4.0, DIM).sqrt()[:, None]
    torch.testing.assert_close(rows @ rows.T, torch.eye(RANK, dtype=rows.dtype), rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e18, 1e20, 1e22])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_jump_to_large_data_of_low_rank_equals_formula(scale, num):
    """Directions that the data do not span keep an eigenvalue whose inverse exceeds float32."""
    state = OnlineNaturalGradient(RANK)
    small, great = minibatches(1, 40, GRADED, 1e-12)[0], minibatches(1, num, GRADED, scale)[0]
    for x in (small, great, great, small):
        xhat, scale_back = state.precondition(torch.from_numpy(x).float())
        assert xhat.isfinite().all() and state.factor.isfinite().all()


@pytest.mark.parametrize("angle", [1e-3, 1e-5, 1e-7, 1e-8])
def test_nearly_parallel_rows_are_orthonormalised_exactly(angle):
    """The Cholesky factor of their products would lose precision by the square of the angle."""
    e = torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)
    span = torch.linalg.qr(
        torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    )[0].T
    rows = torch.stack([span[0], span[0] + angle * span[1], span[2]])
    fixed = orthogonalise(e.sqrt()[:, None] * rows, e) / e.sqrt()[:, None]
    torch.testing.assert_close(fixed @ fixed.T, torch.eye(3, dtype=torch.float64), atol=1e-13, rtol=0)


@pytest.mark.parametrize("trace", [1e-9, 1e-15, 1e-19, 1e-21, 1e-24])
def test_simple_form_has_trace_floor(trace):
    x = torch.from_numpy(minibatches(1, 40, GRADED)[0])
    x = x * trace**0.5 / x.norm()
    num, dim = x.shape
    q = torch.linalg.solve(
        4 * max(trace, 1e-20) / (num * dim) * torch.eye(dim, dtype=x.dtype) + x.T @ x / (num - 1), x.T
    ).T
    gamma = (x * q).sum(1, keepdim=True)
    expected = (1 + gamma / (num - 1 - gamma)) * q
    xhat, scale = precondition_within_minibatch(x)
    torch.testing.assert_close(scale * xhat / x.norm(), expected / expected.norm(), rtol=1e-9, atol=1e-12)
