r"""Natural gradient for stochastic gradient descent: data are multiplied by a smoothed inverse of their
covariance.

References
    D. Povey, X. Zhang, S. Khudanpur, "Parallel training of DNNs with natural gradient and parameter
    averaging", arXiv:1410.7455: the method, and its simple form. `OnlineNaturalGradient` and
    `precondition_within_minibatch` behave as Kaldi's nnet3 and nnet2 programs with the same options.

Why
    The weights of an affine layer move by lr Y' X: X (N x D_in) are its inputs in a minibatch, with a 1
    appended for the bias, Y (N x D_out) the derivatives by its outputs. The natural gradient multiplies this
    by the inverse Fisher matrix. That matrix is approximated by the Kronecker product of the uncentred
    covariances of the two sides, so that each side can be preconditioned independently,

        [W b] <- [W b] + lr g_in g_out Yhat' Xhat                                                          (1)

    and a direction that all frames share (the mean of sigmoid activations, say) cannot dominate the step.

Notation, for one side
    X     N x D, the rows of a minibatch
    F     D x D, the model of their covariance: R eigenvectors, the orthonormal rows of V (R x D), have the
          eigenvalues d + rho (d has R elements), all others have the eigenvalue rho
    W     R x D, the state, W = E^1/2 V, where E = diag(e), see (3)
    alpha smoothing;  eta weight of this minibatch in the next F;  H, J, K, L products with the data, see (7);
          u the unit of (8)

Method
    The covariance is modelled as low rank plus a multiple of the unit matrix. It is smoothed with its own
    average eigenvalue, and the data are multiplied by the inverse, rescaled to preserve their Frobenius norm:

        F    = V' diag(d) V + rho I                                                                        (2)
        beta = rho (1 + alpha) + (alpha / D) sum(d),      e_i = 1 / (beta / d_i + 1)                       (3)
        Xhat = X - (X W') W  =  beta X (F + (alpha / D) tr(F) I)^-1                                        (4)
        g    = ( tr(X X') / tr(Xhat Xhat') )^1/2,         1 if X is zero                                   (5)

    g is returned in addition to Xhat, as a factor on the gradient. (4) uses the F of earlier minibatches, so
    that no frame preconditions itself. The next F is one step of subspace iteration towards the top
    eigenvectors of

        T = (eta / N) X' X + (1 - eta) F                                                                   (6)
            eta = min(0.9, 1 - exp(-N / num_samples_history)),
                  or min(0.9, 1 / num_minibatches_history), if that is given

    that is Y = V T, Z = Y Y' = U C U', V <- C^-1/2 U' Y, without forming a D x D matrix:

        H = X W',   J = H' X,   K = J J',   L = J W'                                                       (7)
        u = tr T = (eta / N) tr(X X') + (1 - eta) (D rho + sum d);  from here on J, d, rho in units of u   (8)
        Z = (eta / N)^2 E^-1/2 K E^-1/2 + P + P' + M^2,                M = (1 - eta) (diag(d) + rho I)
            P = (eta / N) E^-1/2 L E^-1/2 M                                                                (9)
        Z = U C U',  C = diag(c), c descending, floored at ((1 - eta) rho)^2                              (10)
        rho' = (1 - sum sqrt(c)) / (D - R),   d' = sqrt(c) - rho',
               then both floored at max(eps, delta max sqrt(c))                                           (11)
        W'   = E'^1/2 C^-1/2 U' E^-1/2 ( (eta / N) J + M W )                                              (12)

    with E' of (d', rho') by (3), eps = 1e-10 (not in units of u), delta = 5e-4. F is updated in the first 11
    minibatches, then in every `update_period`-th. In the very first one, row r of V has ones in the columns
    r, r + R, r + 2R, ..., the first of them 1.1 so that no row is the direction of all ones when R = 1, and
    is normalised; d = rho = eps. Three steps (6)-(12) on the minibatch (one, if it has no more than R rows)
    precede the regular one. Nothing is random: equal data give equal results from the first call on.

Numerical hazards
    * Rows of V lose their orthogonality by rounding if C is badly conditioned. If the largest c is above 1e6
      times the smallest (or that is negative, or one was floored), O = E'^-1/2 W' W'^T E'^-1/2 is computed
      after (12). If O differs from the unit matrix by more than 1e-3, W' is multiplied from the left by
      E'^1/2 A^-1 E'^-1/2, O = A A' (Cholesky). If that fails, or an element of A^-1 reaches 100, the rows are
      orthogonalised from scratch (Gram-Schmidt, by a QR factorisation in float64). In (12), c is floored at
      1e-16 of the largest: the remainder of such a row is rounding error, and its inverse could overflow.
    * Scale: c has the fourth power of the data's scale, which exceeds float32 for data of 1e10. Hence the
      units of u: J is computed from H / sqrt(u), and eigenvalues are kept in float64. Data from 1e-20 to 1e20
      are safe; data far below eps^1/2 are not changed.
    * Narrow types: with bfloat16 data the products (4) and (7) with X are bfloat16, and so is H W before the
      difference in (4); K, L and (12) are float32, (9) to (11) float64. L = J W' (= H' H in exact arithmetic)
      makes Z = Y Y' hold for the J at hand, however coarsely it was rounded.
    * Not finite: data with a NaN or infinity give results that are not finite, but do not change the state.

Cost
    4 N D R operations per minibatch for (4), compared with 2 N D_in D_out for (1); an update adds
    2 N D R + 6 D R^2, and O(R^3) in float64. Memory: D R numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyasr.tensor.bfloat16_kernels import subtract_from
from pyasr.tensor.products import minus_mm, mm
from pyasr.tensor.squares import Number, fits_float32, sum_of_squares

EPSILON, DELTA = 1e-10, 5e-4
_MAX_ETA = 0.9
NUM_FIRST_UPDATES = 10
_NUM_FIRST_PASSES = 3
_MAX_CONDITION = 1e6
ORTHONORMAL_TOLERANCE = 1e-3
MAX_INVERSE_CHOLESKY = 100.0
_TRACE_FLOOR = 1e-20
MIN_RELATIVE_C = 1e-16


class OnlineNaturalGradient:
    """The method above for one side of one layer.

    rank                 R; at most D - 1 are used, none if D = 1 (data are then not changed)
    alpha                smoothing, in units of F's average eigenvalue
    num_samples_history  rows over which F forgets
    num_minibatches_history  minibatches over which F forgets instead, whatever their number of rows; 0: use
                             num_samples_history
    update_period        minibatches between two updates of F, after the first 11

        natural_gradient = OnlineNaturalGradient(rank=20)
        for x in minibatches:
            xhat, scale = natural_gradient.precondition(x)          # scale * xhat has the Frobenius norm of x
    """

    def __init__(
        self,
        rank: int,
        alpha: float = 4.0,
        num_samples_history: float = 2000.0,
        update_period: int = 4,
        num_minibatches_history: float = 0.0,
    ):
        history = num_minibatches_history or num_samples_history
        if rank < 1 or alpha < 0 or history <= 0 or update_period < 1 or 0 < num_minibatches_history < 1:
            raise ValueError(
                f"rank {rank}, alpha {alpha}, history {history}, period {update_period}: one is out of range"
            )
        self.rank, self.alpha, self.update_period = rank, alpha, update_period
        self.num_samples_history, self.num_minibatches_history = num_samples_history, num_minibatches_history
        self.frozen = False  # if true, F is not updated
        self.num_minibatches = 0
        self.factor: Tensor | None = None  # W; None before the first minibatch
        self.eigenvalues: Tensor | None = None  # d and rho, float64 (R + 1,), on the host
        self._copies: tuple[Tensor, Tensor | None] | None = None
        # takes over `_step`; it does not wait for the host
        self.lagged: Callable[[Tensor], tuple] | None = None

    def precondition(self, x: Tensor) -> tuple[Tensor, Number]:
        """(Xhat, g) of equations (4) and (5) for X (N, D), and the update of F if one is due."""
        xhat, _, scale = self._step(x, ones=False)
        return xhat, scale

    def precondition_with_ones(self, x: Tensor) -> tuple[Tensor, Tensor, Number]:
        """Precondition [X 1], never formed: (Xhat (N, D - 1), its last column (N,), g) for X (N, D - 1)."""
        return self._step(x, ones=True)

    def state_dict(self) -> dict:
        """The state as tensors and plain values; empty before the first minibatch."""
        if self.factor is None:
            return {}
        return {
            "factor": self.factor,
            "eigenvalues": self.eigenvalues,
            "num_minibatches": self.num_minibatches,
        }

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the result of `state_dict` on `device`; later results are bit-identical."""
        self.factor = self.eigenvalues = self._copies = None
        self.num_minibatches = state.get("num_minibatches", 0)
        if state:
            self.set(state["factor"].to(device, copy=True), state["eigenvalues"].to("cpu", copy=True))

    def skip_warm_up(self) -> int:
        """Skip to the end of the first minibatches, which all update F; returns the period of later
        updates."""
        self.num_minibatches = max(self.num_minibatches, NUM_FIRST_UPDATES + 1)
        return self.update_period

    @torch.no_grad()
    def _step(self, x: Tensor, ones: bool) -> tuple[Tensor, Tensor | None, Number]:
        if self.lagged is not None:
            return self.lagged(x)
        column = x.new_ones(len(x)) if ones else None
        if x.shape[1] + ones < 2 or len(x) == 0 or not self._ready(x, ones):
            return x, column, 1.0
        w, last = self._narrow(x.dtype, ones)
        ht = _projections(x, w, last)
        xhat, trace, trace_hat = _residual(x, ht, w)
        if ones:
            column = column - last @ ht
            trace, trace_hat = trace + len(x), trace_hat + sum_of_squares(column)
        if self.update_is_due() and math.isfinite(trace):
            self._update(x, ht, trace, ones)
        self.num_minibatches += 1
        return xhat, column, root_of_ratio(trace, trace_hat)

    def _ready(self, x: Tensor, ones: bool) -> bool:
        """Initialise the state from X if there is none; returns whether there is a state."""
        if self.factor is None:
            trace = sum_of_squares(x) + (len(x) if ones else 0)
            if math.isfinite(trace):
                self._initialise(x, trace, ones)
        return self.factor is not None

    def update_is_due(self) -> bool:
        """Whether F is updated in the next minibatch."""
        t = self.num_minibatches
        return not self.frozen and (
            t <= NUM_FIRST_UPDATES or (t - NUM_FIRST_UPDATES) % self.update_period == 0
        )

    def _narrow(self, dtype: torch.dtype, ones: bool) -> tuple[Tensor, Tensor | None]:
        """W in the type of the data; with ones, W without its last column, and that column."""
        if self._copies is None or self._copies[0].dtype != dtype:
            w = self.state[0].to(dtype)
            self._copies = (w[:, :-1].contiguous(), w[:, -1].contiguous()) if ones else (w, None)
        return self._copies

    @property
    def state(self) -> tuple[Tensor, Tensor]:
        """W and its eigenvalues, which exist after the first minibatch."""
        assert self.factor is not None and self.eigenvalues is not None
        return self.factor, self.eigenvalues

    def set(self, factor: Tensor, eigenvalues: Tensor) -> None:
        """Replace the state."""
        self.factor, self.eigenvalues, self._copies = factor, eigenvalues, None

    def _initialise(self, x: Tensor, trace: Number, ones: bool) -> None:
        """Set the initial state, then make passes over the first minibatch; one pass suffices for at most R
        rows."""
        dim = x.shape[1] + ones
        rank = min(self.rank, dim - 1)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        eigenvalues = torch.full((rank + 1,), EPSILON, dtype=torch.float64)
        root = smoothed(eigenvalues, self.alpha, dim).sqrt().to(x.device, wide)
        self.set(root[:, None] * initial_rows(rank, dim, wide, x.device), eigenvalues)
        for _ in range(1 if len(x) <= rank else _NUM_FIRST_PASSES):
            w, last = self._narrow(x.dtype, ones)
            self._update(x, _projections(x, w, last), trace, ones)

    def _update(self, x: Tensor, ht: Tensor, trace: Number, ones: bool) -> None:
        """Equations (6) to (12): matrices with D columns on the data's device, R x R matrices on the host."""
        before, values = self.state[0], self.state[1].numpy()
        dim, eta = before.shape[1], self.eta(len(x))
        unit = next_unit(float(trace), values, eta, len(x), dim)
        j = self._correlation(x, ht, unit, ones)
        found = next_factor(*_products(j, before), unit, values, self.alpha, eta, len(x), dim)
        factor = self._on_device(found.left) @ j.mul_(eta / len(x)).addcmul_(
            self._on_device(found.kept)[:, None], before
        )
        if found.is_ill_conditioned:
            factor = orthogonalise(
                factor, torch.from_numpy(smoothed(found.eigenvalues, self.alpha, dim)).to(factor.device)
            )
        self.set(factor, torch.from_numpy(found.eigenvalues))

    def eta(self, num_rows: int) -> float:
        """The weight of a minibatch in F."""
        history = self.num_minibatches_history
        return min(_MAX_ETA, 1 / history if history else 1 - math.exp(-num_rows / self.num_samples_history))

    def _on_device(self, small: np.ndarray) -> Tensor:
        """A small array on the device of W, in its type."""
        factor, _ = self.state
        return torch.from_numpy(small).to(factor.device, factor.dtype)

    def _correlation(self, x: Tensor, ht: Tensor, unit: float, ones: bool) -> Tensor:
        """J in units of `unit`, half of which is divided out before and half after the product, in W's
        type."""
        ht, wide = ht * unit**-0.5, self.state[0].dtype
        j = mm(ht, x).to(wide)
        if ones:
            j = torch.cat([j, ht.sum(1, dtype=wide)[:, None]], 1)
        return j.mul_(unit**-0.5)


@dataclass(frozen=True)
class NextFactor:
    """The result of equations (9) to (11); W' of (12) is left ((eta / N) J + diag(kept) W).

    left                E'^1/2 C^-1/2 U' E^-1/2, float64 (R, R)
    kept                diagonal of M (R,)
    eigenvalues         d' and rho' (R + 1,)
    is_ill_conditioned  whether rows of V may have lost their orthogonality
    """

    left: np.ndarray
    kept: np.ndarray
    eigenvalues: np.ndarray
    is_ill_conditioned: bool


def next_unit(trace: float, eigenvalues: np.ndarray, eta: float, num_rows: int, dim: int) -> float:
    """u of equation (8)."""
    return eta / num_rows * trace + (1 - eta) * (dim * eigenvalues[-1] + eigenvalues[:-1].sum())


def next_factor(
    k: np.ndarray,
    l: np.ndarray,
    unit: float,
    eigenvalues: np.ndarray,
    alpha: float,
    eta: float,
    num_rows: int,
    dim: int,
) -> NextFactor:
    """Equations (9) to (11), from K and L (R, R) of J in units of `unit`, float64, d and rho (R + 1,)."""
    new, old, values = eta / num_rows, 1 - eta, eigenvalues / unit
    kept, root = old * (values[:-1] + values[-1]), smoothed(values, alpha, dim) ** -0.5
    c, u = torch.linalg.eigh(torch.from_numpy(_second_moment(k, l, new, kept, root)))
    c, u = c.numpy()[::-1], u.numpy()[:, ::-1]
    floored = np.maximum(c, max((old * values[-1]) ** 2, MIN_RELATIVE_C * c[0]))
    following = _next_eigenvalues(np.sqrt(floored), unit, dim)
    left = np.sqrt(smoothed(following, alpha, dim) / floored)[:, None] * u.T * root
    return NextFactor(left, kept, following, bool(c[0] > _MAX_CONDITION * c[-1] or (floored != c).any()))


def _products(j: Tensor, w: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """K and L of equation (7), float64, on the host."""
    products = torch.cat([mm(j, j.T), mm(j, w.T)]).cpu().double().numpy()
    return products[: len(j)], products[len(j) :]


def _second_moment(
    k: np.ndarray, l: np.ndarray, new: float, kept: np.ndarray, root: np.ndarray
) -> np.ndarray:
    """Z of equation (9). kept = (1 - eta) (d + rho), the diagonal of M; root = e^-1/2."""
    cross = (new * root)[:, None] * l * (root * kept)
    z = (new * root)[:, None] * k * (new * root) + cross + cross.T
    z.flat[:: len(z) + 1] += kept**2
    return z


def _next_eigenvalues(root_c: np.ndarray, unit: float, dim: int) -> np.ndarray:
    """d' and rho' of equation (11), not in units of `unit`, from sqrt(c) in units of `unit`."""
    rho = (1 - root_c.sum()) / (dim - len(root_c))
    return np.maximum(np.append(root_c - rho, rho) * unit, max(EPSILON, DELTA * root_c[0] * unit))


def smoothed(eigenvalues, alpha: float, dim: int):
    """e of equation (3) from d and rho (tensor or array), in any unit."""
    d, rho = eigenvalues[:-1], eigenvalues[-1]
    return 1 / ((rho * (1 + alpha) + alpha / dim * d.sum()) / d + 1)


def initial_rows(rank: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The initial orthonormal rows, (rank, dim)."""
    column = torch.arange(dim, device=device)
    rows = (column % rank == torch.arange(rank, device=device)[:, None]).to(dtype)
    rows[:, :rank] *= 1.1
    return rows / rows.norm(dim=1, keepdim=True)


def orthogonalise(factor: Tensor, e: Tensor) -> Tensor:
    """W' = E'^1/2 R with orthonormal R, from a W' whose R is no longer orthonormal (see "Numerical hazards").
    e float64 (R,)."""
    root = e.sqrt()[:, None]
    rows = factor.double() / root
    gram = rows @ rows.T
    unit = torch.eye(len(e), dtype=gram.dtype, device=gram.device)
    if bool(((gram - unit).abs() <= ORTHONORMAL_TOLERANCE).all()):
        return factor
    cholesky, info = torch.linalg.cholesky_ex(gram)
    inverse = torch.linalg.solve_triangular(cholesky, unit, upper=False)
    if bool((info == 0) & (inverse.max() < MAX_INVERSE_CHOLESKY)):
        rows = inverse @ rows
    else:
        rows = torch.linalg.qr(rows.T)[0].T
    return (root * rows).to(factor.dtype)


@torch.no_grad()
def precondition_within_minibatch(x: Tensor, alpha: float = 4.0) -> tuple[Tensor, Number]:
    r"""The simple form (arXiv:1410.7455): every row of X (N, D) times the inverse covariance of the other
    rows. (Xhat, g) as above.

        lambda = alpha tr(X'X) / (N D)                                         the trace floored at 1e-20
        Q = X (lambda I + X'X / (N-1))^-1  =  (lambda I + X X' / (N-1))^-1 X   the smaller matrix is inverted
        gamma_n = x_n . q_n,   xhat_n = (1 + gamma_n / (N - 1 - gamma_n)) q_n
                              removes row n from its own covariance
        g = ( tr(X X') / tr(Xhat Xhat') )^1/2

    A minibatch of one row, and one that is zero or not finite, is not changed. Cost: 2 N D min(N, D)
    operations in float32.
    """
    num, dim = x.shape
    trace = float(sum_of_squares(x))
    if num < 2 or not 0 < trace < math.inf:
        return x, 1.0
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    rows = x.to(wide) / math.sqrt(trace / (num * dim))
    q = _times_inverse_covariance(rows, alpha * max(1.0, _TRACE_FLOOR / trace))
    gamma = (rows * q).sum(1, keepdim=True)
    xhat = q * (1 + gamma / (num - 1 - gamma))
    return xhat.to(x.dtype), root_of_ratio(trace, float(sum_of_squares(xhat)))


def _times_inverse_covariance(rows: Tensor, smoothing: float) -> Tensor:
    """Q of the simple form; rows have unit mean square, so `smoothing` is lambda in units of it."""
    num, dim = rows.shape
    gram = rows.T @ rows if num >= dim else rows @ rows.T
    gram.div_(num - 1).diagonal().add_(smoothing)
    cholesky = torch.linalg.cholesky(gram)
    return torch.cholesky_solve(rows.T, cholesky).T if num >= dim else torch.cholesky_solve(rows, cholesky)


def _projections(x: Tensor, w: Tensor, last: Tensor | None) -> Tensor:
    """H' (R, N), which a CPU computes in half the time of H for small R; `last`: W's entries for the column
    of ones, if there is one."""
    ht = mm(w, x.T)
    return ht if last is None else ht.add_(last[:, None])


def _residual(x: Tensor, ht: Tensor, w: Tensor) -> tuple[Tensor, Number, Number]:
    """X - H W, and the squared norms of X and of the difference."""
    if x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.is_contiguous():
        xhat = ht.T @ w
        squares = subtract_from(x, xhat)
        if all(map(fits_float32, squares)):
            return xhat, *squares
    else:
        xhat = minus_mm(x, ht.T, w)
    return xhat, sum_of_squares(x), sum_of_squares(xhat)


def root_of_ratio(a: Number, b: Number) -> Number:
    """g of equation (5) from two traces: sqrt(a / b); 1 if a is 0 or not a number."""
    if isinstance(b, Tensor):
        return torch.where(a > 0, (a / b).sqrt(), 1.0)
    return math.sqrt(a / b) if a > 0 else 1.0
