"""Online natural gradient in float64, by the equations of Kaldi's natural-gradient-online: an oracle for the
module.

It forms every matrix of them, in the units of the data; the state W, d, rho can be set. See D. Povey, X.
Zhang, S. Khudanpur, arXiv:1410.7455, whose letters these are; `t` counts minibatches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import diag, eye, sqrt, trace

ALPHA, EPSILON, DELTA, HISTORY = 4.0, 1e-10, 5e-4, 2000.0


class ByFormula:
    """Keeps c (before its floor) and `lowest` of the last update, and in `clauses` which rules applied: a set
    of "capped", "c floored", "d floored", "rho floored", "orthogonal enough", "cholesky" and
    "gram-schmidt"."""

    def __init__(self, rank: int, period: int = 4, num_minibatches_history: float = 0.0):
        self.rank, self.period, self.t, self.W, self.clauses = rank, period, 0, None, set()
        self.num_minibatches_history = num_minibatches_history

    def precondition(self, X: np.ndarray) -> np.ndarray:
        """Xhat with the norm of X."""
        if self.W is None:
            self._begin(X)
        Xhat = X - X @ self.W.T @ self.W
        gamma = sqrt(trace(X @ X.T) / trace(Xhat @ Xhat.T)) if X.any() else 1.0
        if self.t <= 10 or (self.t - 10) % self.period == 0:
            self.update(X)
        self.t += 1
        return gamma * Xhat

    def _begin(self, X):
        D = X.shape[1]
        R = min(self.rank, D - 1)
        self.d, self.rho = np.full(R, EPSILON), EPSILON
        self.W = diag(sqrt(smoothed(self.d, self.rho, D))) @ first_rows(R, D)
        for _ in range(1 if len(X) <= R else 3):
            self.update(X)

    def update(self, X: np.ndarray) -> None:
        """Update W, d and rho."""
        N, D = X.shape
        W, d, rho, R = self.W, self.d, self.rho, len(self.d)
        eta = min(
            0.9,
            1 / self.num_minibatches_history if self.num_minibatches_history else 1 - math.exp(-N / HISTORY),
        )
        H = X @ W.T
        J = H.T @ X
        K, L = J @ J.T, H.T @ H
        E_root, model = diag(smoothed(d, rho, D) ** -0.5), diag(d) + rho * eye(R)
        cross = E_root @ L @ E_root @ model
        Z = (
            (eta / N) ** 2 * E_root @ K @ E_root
            + eta / N * (1 - eta) * (cross + cross.T)
            + (1 - eta) ** 2 * model @ model
        )
        c, U = np.linalg.eigh(Z / max(1, trace(Z)))
        c, U = c[::-1] * max(1, trace(Z)), U[:, ::-1]
        self.c, self.lowest = c, (rho * (1 - eta)) ** 2
        loses_orthogonality = c[0] > 1e6 * c[-1] or c[-1] < self.lowest
        self.clauses = {
            name for name, holds in {"capped": eta == 0.9, "c floored": c[-1] < self.lowest}.items() if holds
        }
        c = np.maximum(c, self.lowest)
        unfloored = (eta / N * trace(X @ X.T) + (1 - eta) * (D * rho + d.sum()) - sqrt(c).sum()) / (D - R)
        floor = max(EPSILON, DELTA * sqrt(c.max()))
        self.clauses |= {"d floored"} if (sqrt(c) - unfloored < floor).any() else set()
        self.clauses |= {"rho floored"} if unfloored < floor else set()
        self.d, self.rho = np.maximum(sqrt(c) - unfloored, floor), max(unfloored, floor)
        e = smoothed(self.d, self.rho, D)
        B = J + (1 - eta) / (eta / N) * (diag(d) + rho * eye(R)) @ W
        self.W = eta / N * diag(sqrt(e)) @ diag(c**-0.5) @ U.T @ E_root @ B
        if loses_orthogonality:
            self._orthogonalise(sqrt(e)[:, None])

    def _orthogonalise(self, root_e):
        """Restore the orthonormality of the rows of W E^-1/2."""
        O = (self.W / root_e) @ (self.W / root_e).T  # noqa: E741
        if (abs(O - eye(len(O))) <= 1e-3).all():
            self.clauses.add("orthogonal enough")
            return
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(O))
            succeeds = inverse.max() < 100
        except np.linalg.LinAlgError:
            succeeds = False
        self.clauses.add("cholesky" if succeeds else "gram-schmidt")
        self.W = root_e * (inverse @ (self.W / root_e) if succeeds else gram_schmidt(self.W / root_e))


def smoothed(d: np.ndarray, rho: float, dim: int) -> np.ndarray:
    """e from d and rho."""
    beta = rho * (1 + ALPHA) + ALPHA / dim * d.sum()
    return 1 / (beta / d + 1)


def first_rows(rank: int, dim: int) -> np.ndarray:
    """Orthonormal rows with 1.1 at the first position of each."""
    rows = np.zeros((rank, dim))
    for column in range(dim):
        rows[column % rank, column] = 1.1 if column < rank else 1.0
    return rows / sqrt((rows**2).sum(1))[:, None]


def gram_schmidt(rows: np.ndarray) -> np.ndarray:
    """Orthonormalise row by row, twice for accuracy."""
    done = np.zeros((0, rows.shape[1]))
    for row in rows:
        for _ in range(2):
            row = row - done.T @ (done @ row)
            row = row / sqrt(row @ row)
        done = np.vstack([done, row])
    return done
