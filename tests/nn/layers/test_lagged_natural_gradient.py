"""Natural gradient with the defined lag: against the form without a lag, a dense transcription of the lag,
and non-finite minibatches."""

from __future__ import annotations

import io
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from natural_gradient_by_formula import ALPHA, ByFormula, smoothed
from torch import Tensor

from pyasr.nn.layers.lagged_natural_gradient import HostInput, LaggedNaturalGradient, next_mix
from pyasr.nn.layers.natural_gradient import (
    EPSILON,
    NUM_FIRST_UPDATES,
    OnlineNaturalGradient,
    next_factor,
    next_unit,
)
from pyasr.tensor.step_kernels import residual

NUM_ROWS, DIM, RANK = 40, 17, 5
FIRST = NUM_FIRST_UPDATES + 1


def minibatches(num: int, sides: int = 1, dim: int = DIM, seed: int = 0) -> list[Tensor]:
    """Gaussian (sides, NUM_ROWS, dim) with another graded spectrum for each side and a mean."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(sides, dim, dim, generator=generator, dtype=torch.float64) * torch.logspace(
        0, -1, dim, dtype=torch.float64
    )
    return [
        torch.randn(sides, NUM_ROWS, dim, generator=generator, dtype=torch.float64) @ axes + 0.5
        for _ in range(num)
    ]


class Driver:
    """Runs the minibatches of a group one after the other, as in a captured step; the host's part runs at
    once."""

    def __init__(
        self,
        sides: list[OnlineNaturalGradient],
        ones: bool = False,
        width: int | None = None,
        dtype=torch.float64,
        workers=None,
    ):
        columns = sides[0].factor.shape[1] - ones
        self.width, self.dtype = width or columns, dtype
        self.lag = LaggedNaturalGradient(sides, ones, self.width, dtype, workers)

    def step(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(Xhat, result of the column of ones) of (B, N, D)."""
        x = torch.cat([x, x.new_zeros(*x.shape[:2], self.width - x.shape[2])], 2).to(self.dtype)
        is_due = self.lag.sides[0].update_is_due()
        if is_due:
            self.begin()
        ht, xhat = self.lag.projections(x), torch.empty_like(x)
        squares = residual(x, ht, self.lag.w, xhat).sum(2)
        if is_due:
            self.update_gram(x, ht, squares[0])
        for side in self.lag.sides:
            side.num_minibatches += 1
        return xhat, 1 - (self.lag.last.mT @ ht)[:, 0] if self.lag.ones else None

    def begin(self) -> None:
        if (taken := self.lag.take()) is not None:
            self.lag.mix.copy_(torch.from_numpy(taken[0]))
            self.lag.inverse_units[:, 0, 0] = torch.from_numpy(taken[1])
        self.lag.begin()

    def update_gram(self, x: Tensor, ht: Tensor, traces: Tensor) -> None:
        lag = self.lag
        lag.update_gram(x, ht)
        lag.traces.copy_(traces + (x.shape[1] if lag.ones else 0))
        lag.start_solving(
            HostInput(
                lag.gram.numpy().copy(),
                lag.traces.numpy().copy(),
                lag.inverse_units[:, 0, 0].numpy().copy(),
                x.shape[1],
            )
        )


def precondition(side: OnlineNaturalGradient, x: Tensor, ones: bool) -> tuple[Tensor, Tensor | None]:
    xhat, column, _ = side._step(x, ones)
    return xhat, column


def trained(
    num_sides: int, ones: bool = False, period: int = 1, xs: list[Tensor] | None = None
) -> list[OnlineNaturalGradient]:
    """State of the sides after the first minibatches."""
    sides = [OnlineNaturalGradient(RANK, update_period=period) for _ in range(num_sides)]
    for x in (xs or minibatches(FIRST, num_sides))[:FIRST]:
        for side, its_own in zip(sides, x):
            precondition(side, its_own, ones)
    return sides


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize(
    "num_sides, ones, padding", [(1, False, 0), (3, False, 7), (1, True, 0), (3, True, 7)]
)
def test_update_period_1_equals_form_without_lag(num_sides, ones, padding):
    """With update period 1, minibatches use the same W. Padding columns stay zero."""
    xs = minibatches(FIRST + 25, num_sides)
    plain = trained(num_sides, ones, xs=xs)
    driver = Driver(trained(num_sides, ones, xs=xs), ones, DIM + padding)
    for x in xs[FIRST:]:
        xhat, columns = driver.step(x)
        assert not xhat[..., DIM:].any() and not driver.lag.factor[..., DIM : DIM + padding].any()
        for number, side in enumerate(plain):
            expected, column = precondition(side, x[number], ones)
            assert relative(xhat[number, :, :DIM], expected) < 1e-12
            assert not ones or relative(columns[number], column) < 1e-12
    driver.begin()
    driver.lag.write_back()
    for side, own in zip(driver.lag.sides, plain):
        assert relative(side.factor, own.factor) < 1e-11
        torch.testing.assert_close(side.eigenvalues, own.eigenvalues, rtol=1e-11, atol=0)


class LaggedByFormula(ByFormula):
    """W of a minibatch that updates F is used from the beginning of the next such minibatch on."""

    waiting = None

    def precondition(self, X: np.ndarray) -> np.ndarray:
        if self.t <= NUM_FIRST_UPDATES:
            return super().precondition(X)
        if (self.t - NUM_FIRST_UPDATES) % self.period == 0:
            if self.waiting is not None:
                self.update(self.waiting)
            self.waiting = X
        Xhat = X - X @ self.W.T @ self.W
        self.t += 1
        return np.linalg.norm(X) / np.linalg.norm(Xhat) * Xhat


@pytest.mark.parametrize("ones", [False, True], ids=["", "with ones"])
@pytest.mark.parametrize("period", [1, 4])
def test_equals_formula_with_lag(period, ones):
    """One side, as in layers of any network."""
    xs = minibatches(FIRST + 30)
    formula, side = LaggedByFormula(RANK, period), trained(1, ones, period, xs)[0]
    expected = [formula.precondition(np.hstack([x[0].numpy(), np.ones((NUM_ROWS, int(ones)))])) for x in xs]
    driver = Driver([side], ones)
    lag = driver.lag
    side.lagged = lag.precondition
    for x, right in zip(xs[FIRST:], expected[FIRST:]):
        lag.updates = side.update_is_due()
        if lag.updates:
            driver.begin()
        xhat, column, scale = side._step(x[0], ones)
        if lag.updates:
            lag.start_solving(
                HostInput(
                    lag.gram.numpy().copy(),
                    lag.traces.numpy().copy(),
                    lag.inverse_units[:, 0, 0].numpy().copy(),
                    lag.num_rows,
                )
            )
        side.num_minibatches += 1
        xhat = torch.cat([xhat, column[:, None]], 1) if ones else xhat
        assert relative(scale * xhat, torch.from_numpy(right)) < 1e-9


def with_rows(rows_of, num_steps: int) -> Driver:
    """Result after some minibatches, from a V whose rows `rows_of` has changed."""
    driver = Driver(trained(1, period=1))
    lag = driver.lag
    root = np.sqrt(smoothed(lag.eigenvalues[0][:-1], lag.eigenvalues[0][-1], DIM))[:, None]
    lag.factor[0] = torch.from_numpy(root * rows_of(lag.factor[0].numpy() / root))
    lag._narrow()
    for x in minibatches(num_steps, seed=3):
        driver.step(x)
    return driver


def oblique(rows: np.ndarray) -> np.ndarray:
    """Make the rows not orthonormal."""
    rows = rows.copy()
    rows[1] += 0.05 * rows[0]
    return rows


def test_rows_are_reorthonormalised():
    """One update later, the result equals the formula with orthonormal rows from a Cholesky factor."""
    driver, formula = with_rows(oblique, 0), ByFormula(RANK, 1)
    formula.W = driver.lag.factor[0].numpy().copy()
    formula.d = driver.lag.eigenvalues[0][:-1]
    formula.rho = driver.lag.eigenvalues[0][-1]
    formula._orthogonalise(np.sqrt(smoothed(formula.d, formula.rho, DIM))[:, None])
    assert formula.clauses == {"cholesky"}
    x = minibatches(1, seed=4)[0]
    driver.step(x)
    driver.begin()
    formula.update(x[0].numpy())
    np.testing.assert_allclose(driver.lag.eigenvalues[0], np.append(formula.d, formula.rho), rtol=1e-11)
    found = driver.lag.factor[0].numpy()
    np.testing.assert_allclose(
        found.T @ found, formula.W.T @ formula.W, atol=1e-11 * np.linalg.norm(formula.W) ** 2
    )


@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-7])
def test_nearly_parallel_rows_are_separated(angle):
    """The inverse of the Cholesky factor is too large or does not exist. The data restore the row within some
    updates."""

    def nearly_parallel(rows):
        return np.vstack([rows[:1], rows[:1] + angle * rows[1:2], rows[2:]])

    driver = with_rows(nearly_parallel, 12)
    values, w = driver.lag.eigenvalues[0], driver.lag.factor[0].numpy()
    rows = w / np.sqrt(smoothed(values[:-1], values[-1], DIM))[:, None]
    np.testing.assert_allclose(rows @ rows.T, np.eye(RANK), atol=2e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_minibatch_changes_nothing(bad):
    """After a minibatch with one non-finite side, W and eigenvalues of this side stay the same at the update.
    The other side is updated."""
    xs = minibatches(FIRST + 6, 2)
    driver = Driver(trained(2, xs=xs))
    xs[FIRST + 2][0, 3, 4] = bad
    states = []
    for x in xs[FIRST:]:
        driver.step(x)
        states.append((driver.lag.factor.clone(), [values.copy() for values in driver.lag.eigenvalues]))
    of_bad, after, later = states[2:5]
    assert torch.equal(of_bad[0][0], after[0][0]) and (of_bad[1][0] == after[1][0]).all()
    assert not torch.equal(of_bad[0][1], after[0][1]) and not torch.equal(after[0][0], later[0][0])
    assert states[-1][0].isfinite().all() and np.isfinite(states[-1][1]).all()


def test_resume_between_updates_gives_same_bits():
    """From a checkpoint without code, between two updates."""
    xs = minibatches(FIRST + 14, 2)
    driver = Driver(trained(2, True, 4, xs), True, DIM + 3)
    for x in xs[FIRST : FIRST + 6]:
        driver.step(x)
    driver.lag.write_back()
    file = io.BytesIO()
    torch.save(
        {"sides": [side.state_dict() for side in driver.lag.sides], "pending": driver.lag.pending()}, file
    )
    file.seek(0)
    state = torch.load(file, weights_only=True)
    sides = [OnlineNaturalGradient(RANK) for _ in range(2)]
    for side, its_own in zip(sides, state["sides"]):
        side.load_state_dict(its_own, torch.device("cpu"))
    other = Driver(sides, True, DIM + 3)
    other.lag.restore(state["pending"])
    for x in xs[FIRST + 6 :]:
        for found, expected in zip(other.step(x), driver.step(x)):
            assert torch.equal(found, expected)


def test_threads_give_same_bits():
    xs = minibatches(FIRST + 8, 3)
    with ThreadPoolExecutor(3) as workers:
        alone, threads = Driver(trained(3, xs=xs)), Driver(trained(3, xs=xs), workers=workers)
        for x in xs[FIRST:]:
            assert torch.equal(alone.step(x)[0], threads.step(x)[0])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_narrow_types_follow_float64(dtype, tolerance, scale):
    """Including data whose fourth power exceeds float32."""
    xs = minibatches(FIRST + 20)
    wide, narrow = (
        Driver(trained(1, xs=[(scale * x).to(kind) for x in xs]), dtype=kind)
        for kind in (torch.float64, dtype)
    )
    for x in xs[FIRST:]:
        (expected, _), (xhat, _) = wide.step(scale * x), narrow.step(scale * x)
        assert (
            xhat.dtype == dtype
            and relative(xhat.double(), expected) < tolerance * (scale * x).norm() / expected.norm()
        )
    assert narrow.lag.factor.dtype == torch.float32


@pytest.mark.parametrize("scale, num_floored", [(1.0, 0), (1e-4, RANK - 1), (1e-7, RANK + 1)])
def test_mixture_equals_that_of_next_factor(scale, num_floored):
    """A of S against `next_factor` of K and L, for any scale of J, also with eigenvalues at their floor."""
    rng = np.random.default_rng(5)
    x = scale * rng.standard_normal((NUM_ROWS, DIM))
    eigenvalues = np.append(np.linspace(3e-8, 1e-8, RANK), 2e-9) * (scale > 1e-3 or 1e-3)
    w = (
        np.sqrt(smoothed(eigenvalues[:-1], eigenvalues[-1], DIM))[:, None]
        * np.linalg.qr(rng.standard_normal((DIM, RANK)))[0].T
    )
    eta, trace, inverse_unit = 0.02, np.square(x).sum(), 37.0
    j = w @ x.T @ x
    rows = np.vstack([inverse_unit * j, w])
    mix, following, unit = next_mix(
        rows @ rows.T, trace, inverse_unit, eigenvalues, ALPHA, eta, NUM_ROWS, DIM
    )
    assert unit == pytest.approx(next_unit(trace, eigenvalues, eta, NUM_ROWS, DIM), rel=1e-13)
    found = next_factor(j @ j.T / unit**2, j @ w.T / unit, unit, eigenvalues, ALPHA, eta, NUM_ROWS, DIM)
    np.testing.assert_allclose(following, found.eigenvalues, rtol=1e-9)
    expected = found.left @ (eta / NUM_ROWS * j / unit + found.kept[:, None] * w)
    np.testing.assert_allclose(
        (mix @ rows).T @ (mix @ rows), expected.T @ expected, atol=1e-9 * np.linalg.norm(expected) ** 2
    )
    assert (following == EPSILON).sum() == num_floored


def test_w_keeps_precision_with_tf32_data(monkeypatch):
    """Both products of W itself keep float32. The tf32 setting is restored afterwards."""
    settings, seen = torch.backends.cuda.matmul, []
    monkeypatch.setattr(settings, "allow_tf32", True)
    side = OnlineNaturalGradient(3)
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    side.precondition(x)
    group = LaggedNaturalGradient([side], False, 8, torch.float32)
    multiply = torch.bmm
    monkeypatch.setattr(
        torch, "bmm", lambda *args, **kwargs: seen.append(settings.allow_tf32) or multiply(*args, **kwargs)
    )
    group.begin()
    group.update_gram(x[None], group.projections(x[None]))
    assert seen == [False, False] and settings.allow_tf32
