r"""Row-by-row optimisation of a linear or affine transform of features for given Gaussian statistics (Gales
1998, 1999).

W = [A b] (D, D + 1), or A alone (D, D), maximises

    Q(W) = beta log |det A| + sum_d ( w_d . k_d - 1/2 w_d G_d w_d^T )          w_d: row d of W

If all rows except d are fixed, |det A| is |w_d . c_d| times a constant, where c_d is column d of A^-1 (its
cofactors up to a factor; 0 for b). Then

    w_d = (alpha c_d + k_d) G_d^-1,     alpha^2 e_1 + alpha e_2 - beta = 0
    e_1 = c_d G_d^-1 c_d^T,   e_2 = c_d G_d^-1 k_d^T

with the root that has the larger Q. With k = 0 and without b this is the update of semi-tied covariances
(MLLT).
"""

from __future__ import annotations

import numpy as np


def objective(transform: np.ndarray, beta: float, linear: np.ndarray, quadratic: np.ndarray) -> float:
    """Q(W) for W and `linear` k (D, N), `quadratic` G (D, N, N), N = D or D + 1."""
    dim = len(transform)
    log_det = np.linalg.slogdet(transform[:, :dim])[1]
    return float(
        beta * log_det
        + np.sum(transform * linear)
        - 0.5 * np.einsum("di,dij,dj->", transform, quadratic, transform)
    )


def maximise_rows(
    beta: float, linear: np.ndarray, quadratic: np.ndarray, start: np.ndarray, num_iters: int
) -> np.ndarray:
    """The transform after `num_iters` passes over all rows from `start`; Q never decreases. float64, shapes
    as in `objective`.

    Raises numpy.linalg.LinAlgError if a G_d is singular: too few or degenerate frames.
    """
    dim = len(start)
    transform = np.array(start, np.float64)
    inverse_g = np.linalg.inv(quadratic)
    base = np.einsum("dij,dj->di", inverse_g, linear)
    by_cofactors = np.ascontiguousarray(inverse_g[:, :, :dim])
    for _ in range(num_iters):
        inverse_a = np.linalg.inv(transform[:, :dim])
        for d in range(dim):
            cofactors = inverse_a[:, d].copy()
            step = by_cofactors[d] @ cofactors
            new = (
                _root(beta, float(cofactors @ step[:dim]), float(cofactors @ base[d, :dim])) * step + base[d]
            )
            change = (new[:dim] - transform[d, :dim]) @ inverse_a
            inverse_a -= np.outer(cofactors, change / (1.0 + change[d]))
            transform[d] = new
    return transform


def _root(beta: float, e1: float, e2: float) -> float:
    """The root alpha with the larger Q."""
    if not e1 > 0:
        raise np.linalg.LinAlgError("the statistics are not positive definite")
    root = np.sqrt(e2 * e2 + 4 * e1 * beta)
    candidates = ((-e2 + root) / (2 * e1), (-e2 - root) / (2 * e1))
    return max(candidates, key=lambda alpha: beta * np.log(abs(alpha * e1 + e2)) - 0.5 * alpha * alpha * e1)
