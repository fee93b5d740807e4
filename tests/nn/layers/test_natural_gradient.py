"""Natural gradient against dense formulas in float64, and with degenerate data."""

import math

import pytest
import torch

from pyasr.nn.layers import natural_gradient
from pyasr.nn.layers.natural_gradient import (
    OnlineNaturalGradient,
    initial_rows,
    orthogonalise,
    precondition_within_minibatch,
    smoothed,
)

ALPHA, HISTORY, DIM = 4.0, 2000.0, 30


def mixing_matrix(dim: int = DIM) -> torch.Tensor:
    """Matrix that gives rows of standard normal numbers a covariance with eigenvalues from about `dim` down
    to 1e-4 of that."""
    return torch.randn(
        dim, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ) * torch.logspace(0, -2, dim, dtype=torch.float64)


def minibatch(num: int, seed: int, dim: int = DIM) -> torch.Tensor:
    return torch.randn(
        num, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ) @ mixing_matrix(dim)


def model_of(state: OnlineNaturalGradient) -> torch.Tensor:
    """F of the state, D x D."""
    d, rho = state.eigenvalues[:-1], state.eigenvalues[-1]
    dim = state.factor.shape[1]
    e = 1 / ((rho * (1 + ALPHA) + ALPHA / dim * d.sum()) / d + 1)
    rows = state.factor.double() / e.sqrt()[:, None]
    return rows.T * d @ rows + rho * torch.eye(dim, dtype=torch.float64)


def rescaled(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return x * like.norm() / x.norm()


def trained(num_steps: int, rank: int = 5, **options) -> OnlineNaturalGradient:
    state = OnlineNaturalGradient(rank, **options)
    for seed in range(num_steps):
        state.precondition(minibatch(40, seed))
    return state


@pytest.mark.parametrize("num_steps", [1, 7, 25])
def test_equals_product_with_smoothed_inverse(num_steps):
    state = trained(num_steps)
    x, f = minibatch(50, 99), model_of(state)
    dense = x @ torch.linalg.inv(f + ALPHA / DIM * f.trace() * torch.eye(DIM, dtype=torch.float64))
    xhat, scale = state.precondition(x)
    torch.testing.assert_close(scale * xhat, rescaled(dense, x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("num_steps", [1, 25])
def test_update_equals_subspace_iteration(num_steps):
    """F' from Y = V T by a singular value decomposition."""
    state = trained(num_steps, update_period=1)
    x, f, rank = minibatch(50, 99), model_of(state), 5
    eta = 1 - math.exp(-50 / HISTORY)
    target = eta / 50 * x.T @ x + (1 - eta) * f
    rows = state.factor / smoothed(state.eigenvalues, ALPHA, DIM).sqrt()[:, None]
    _, singular, vectors = torch.linalg.svd(rows @ target, full_matrices=False)
    rho = (target.trace() - singular.sum()) / (DIM - rank)
    expected = vectors.T * (singular - rho) @ vectors + rho * torch.eye(DIM, dtype=torch.float64)
    state.precondition(x)
    torch.testing.assert_close(model_of(state), expected, rtol=1e-8, atol=1e-9)


def test_trace_of_model_equals_that_of_data():
    state = trained(25, update_period=1)
    before, x = model_of(state).trace(), minibatch(50, 99)
    state.precondition(x)
    eta = 1 - math.exp(-50 / HISTORY)
    torch.testing.assert_close(model_of(state).trace(), eta / 50 * x.square().sum() + (1 - eta) * before)


def test_top_eigenvectors_are_found():
    state = trained(300, rank=6, update_period=1)
    _, vectors = torch.linalg.eigh(mixing_matrix().T @ mixing_matrix())
    rows = state.factor / smoothed(state.eigenvalues, ALPHA, DIM).sqrt()[:, None]
    assert ((rows @ vectors[:, -4:]).norm(dim=0) > 0.99).all()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.02)])
def test_narrow_types_follow_float64(dtype, tolerance):
    wide, narrow = OnlineNaturalGradient(5), OnlineNaturalGradient(5)
    for seed in range(30):
        x = minibatch(40, seed)
        (expected, g), (xhat, scale) = wide.precondition(x), narrow.precondition(x.to(dtype))
        assert xhat.dtype == dtype and (scale * xhat.double() - g * expected).norm() < tolerance * x.norm()
    assert narrow.factor.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e6, 1e20])
def test_result_does_not_depend_on_scale_of_data(dtype, scale):
    """Data of any scale give the same result as data of unit scale, and keep their norm."""
    unit, scaled = OnlineNaturalGradient(5), OnlineNaturalGradient(5)
    for seed in range(14):
        x = minibatch(40, seed).float()
        (expected, g), (xhat, h) = unit.precondition(x.to(dtype)), scaled.precondition((x * scale).to(dtype))
        kept = (h * xhat.double()).norm() / (x.double() * scale).norm()
        assert kept == pytest.approx(1, abs=5e-3)
        if scale > 1:
            assert (h * xhat.double() / scale - g * expected.double()).norm() < (
                1e-3 if dtype == torch.float32 else 0.05
            ) * x.norm()


def test_sudden_changes_of_scale_keep_rows_orthonormal():
    state = OnlineNaturalGradient(5, update_period=1)
    for seed, scale in enumerate([1e-12, 1e12, 1, 1e15, 1e-15, 1, 1e-3]):
        state.precondition(scale * minibatch(3, seed).float())
        check_rows(state)


def check_rows(state, tolerance=2e-3):
    gram = (
        state.factor.double()
        @ state.factor.double().T
        / smoothed(state.eigenvalues, ALPHA, state.factor.shape[1])[:, None]
    )
    assert (gram - torch.eye(len(gram))).abs().max() < tolerance and (
        state.eigenvalues >= natural_gradient.EPSILON
    ).all()


@pytest.mark.parametrize("num", [1, 2, 5, 6])
def test_few_rows_keep_norm(num):
    state = OnlineNaturalGradient(5)
    for seed in range(20):
        x = minibatch(num, seed).float()
        xhat, scale = state.precondition(x)
        assert (scale * xhat).norm() == pytest.approx(x.norm().item(), rel=1e-4)
        check_rows(state)


def test_zero_minibatches_give_finite_results():
    state = OnlineNaturalGradient(5, update_period=1)
    for x in (
        torch.zeros(8, DIM),
        minibatch(8, 0).float(),
        torch.zeros(8, DIM),
        minibatch(0, 0).float(),
        minibatch(8, 1).float(),
    ):
        xhat, scale = state.precondition(x)
        assert xhat.shape == x.shape and xhat.isfinite().all() and math.isfinite(scale)
        assert x.any() or (scale == 1 and not xhat.any())
        check_rows(state)


@pytest.mark.parametrize("dim, rank", [(2, 1), (2, 9), (3, 3), (6, 5), (6, 6)])
def test_rank_is_limited_by_dimension(dim, rank):
    state = OnlineNaturalGradient(rank)
    for seed in range(14):
        state.precondition(minibatch(16, seed, dim))
    assert state.factor.shape == (min(rank, dim - 1), dim)
    x, f = minibatch(16, 99, dim), model_of(state)
    dense = x @ torch.linalg.inv(f + ALPHA / dim * f.trace() * torch.eye(dim, dtype=torch.float64))
    xhat, scale = state.precondition(x)
    torch.testing.assert_close(scale * xhat, rescaled(dense, x), rtol=1e-8, atol=1e-10)


def test_single_column_is_unchanged():
    state, x = OnlineNaturalGradient(4), torch.randn(7, 1)
    xhat, scale = state.precondition(x)
    assert torch.equal(xhat, x) and scale == 1 and state.state_dict() == {}


def test_column_of_ones_is_implicit():
    implicit, explicit = OnlineNaturalGradient(5), OnlineNaturalGradient(5)
    for seed in range(20):
        x = minibatch(40, seed)
        xhat, ones, scale = implicit.precondition_with_ones(x)
        expected, expected_scale = explicit.precondition(torch.cat([x, torch.ones(40, 1, dtype=x.dtype)], 1))
        torch.testing.assert_close(torch.cat([xhat, ones[:, None]], 1), expected)
        torch.testing.assert_close(scale, expected_scale)


def test_update_schedule(monkeypatch):
    """Minibatches 0 to 10 and every fourth after that update F; the first one does so four times; no update
    while frozen."""
    counts = []
    update = OnlineNaturalGradient._update
    monkeypatch.setattr(
        OnlineNaturalGradient,
        "_update",
        lambda self, *rest: (counts.append(self.num_minibatches), update(self, *rest)),
    )
    state = trained(23)
    assert counts == [0, 0, 0, *range(11), 14, 18, 22]
    state.frozen = True
    for seed in range(5):
        state.precondition(minibatch(40, seed))
    assert len(counts) == 17
    counts.clear()
    OnlineNaturalGradient(5).precondition(minibatch(5, 0))
    assert counts == [0, 0]


def test_first_rows_equal_definition():
    expected = torch.tensor([[1.1, 0, 1, 0, 1], [0, 1.1, 0, 1, 0]])
    torch.testing.assert_close(
        initial_rows(2, 5, torch.float32, torch.device("cpu")), expected / expected.norm(dim=1, keepdim=True)
    )


def test_equal_data_give_equal_bits():
    states = [OnlineNaturalGradient(5), OnlineNaturalGradient(5)]
    for seed in range(14):
        torch.manual_seed(seed)
        (a, g), (b, h) = (state.precondition(minibatch(20 + seed, seed).float()) for state in states)
        assert torch.equal(a, b) and g == h


def test_resumed_state_gives_same_bits():
    state = trained(13)
    copy = OnlineNaturalGradient(5)
    copy.load_state_dict(state.state_dict(), torch.device("cpu"))
    for seed in range(20, 30):
        assert torch.equal(
            state.precondition(minibatch(9, seed))[0], copy.precondition(minibatch(9, seed))[0]
        )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_minibatch_changes_nothing(bad):
    clean, soiled = trained(14), trained(14)
    x = minibatch(40, 50)
    x[3, 4] = bad
    soiled.precondition(x)
    clean.num_minibatches += 1
    for seed in range(5):
        assert torch.equal(
            clean.precondition(minibatch(9, seed))[0], soiled.precondition(minibatch(9, seed))[0]
        )
    first = OnlineNaturalGradient(5)
    assert first.precondition(x)[1] == 1 and first.factor is None


@pytest.mark.parametrize("kind", ["slightly oblique", "nearly parallel", "zero row"])
def test_rows_are_reorthonormalised(kind):
    """By a Cholesky factor (the first) and by Gram-Schmidt."""
    e = torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)
    rows = torch.linalg.qr(
        torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    )[0].T.contiguous()
    span = rows.clone()
    rows[1] = {
        "slightly oblique": rows[1] + 0.05 * rows[0],
        "nearly parallel": rows[0] + 1e-9 * rows[1],
        "zero row": 0 * rows[1],
    }[kind]
    fixed = orthogonalise(e.sqrt()[:, None] * rows, e) / e.sqrt()[:, None]
    torch.testing.assert_close(fixed @ fixed.T, torch.eye(3, dtype=torch.float64), atol=1e-7, rtol=0)
    if kind != "zero row":
        torch.testing.assert_close(
            (span @ fixed.T).norm(dim=0), torch.ones(3, dtype=torch.float64), atol=1e-5, rtol=0
        )
    nearly = e.sqrt()[:, None] * span * 1.0004
    assert torch.equal(orthogonalise(nearly, e), nearly)


@pytest.mark.parametrize(
    "options",
    [
        dict(rank=0),
        dict(rank=3, alpha=-1.0),
        dict(rank=3, update_period=0),
        dict(rank=3, num_samples_history=0),
        dict(rank=3, num_minibatches_history=0.5),
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="out of range"):
        OnlineNaturalGradient(**options)


@pytest.mark.parametrize("num, dim", [(40, 7), (9, 7), (7, 7), (4, 12), (2, 3), (2, 2)])
def test_simple_form_excludes_each_row_from_its_own_covariance(num, dim):
    x = minibatch(num, 5, dim)
    smoothing = ALPHA * x.square().sum() / (num * dim)
    rows = []
    for n in range(num):
        others = torch.cat([x[:n], x[n + 1 :]])
        rows.append(
            torch.linalg.solve(
                smoothing * torch.eye(dim, dtype=x.dtype) + others.T @ others / (num - 1), x[n]
            )
        )
    xhat, scale = precondition_within_minibatch(x)
    torch.testing.assert_close(scale * xhat, rescaled(torch.stack(rows), x))


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_simple_form_with_other_scales(scale, dtype):
    x = (minibatch(20, 5) * scale).to(dtype)
    xhat, g = precondition_within_minibatch(x)
    assert xhat.dtype == dtype and (g * xhat.double()).norm() == pytest.approx(
        x.double().norm().item(), rel=1e-3
    )


def test_simple_form_leaves_degenerate_data_unchanged():
    for x in (minibatch(1, 0), torch.zeros(5, 4), torch.full((5, 4), math.nan), torch.zeros(0, 4)):
        xhat, scale = precondition_within_minibatch(x)
        assert xhat is x and scale == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_gpu_equals_cpu():
    here, there = OnlineNaturalGradient(5), OnlineNaturalGradient(5)
    for seed in range(20):
        x = minibatch(40, seed)
        (a, g), (b, h) = here.precondition(x), there.precondition(x.cuda())
        assert b.is_cuda and h.is_cuda
        torch.testing.assert_close((h * b).cpu(), g * a, rtol=1e-6, atol=1e-8)


def test_fused_residual_equals_torch():
    torch.manual_seed(0)
    x, ht, w = torch.randn(9, 37).bfloat16(), torch.randn(4, 9).bfloat16(), torch.randn(4, 37).bfloat16()
    xhat, square, square_hat = natural_gradient._residual(x, ht, w)
    assert torch.equal(xhat, x - ht.T @ w)
    assert square == pytest.approx(x.double().square().sum().item()) and square_hat == pytest.approx(
        xhat.double().square().sum().item(), rel=5e-3
    )
