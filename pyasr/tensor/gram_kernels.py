"""The host's part of `pyasr.nn.layers.lagged_natural_gradient`, before and after its eigen-decomposition. The
functions release Python's lock, so that threads running them do not delay the thread that launches the work
of a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit


class Side(NamedTuple):
    """A side of a layer before an update.

    inverse_unit  1 / u of the update before
    eigenvalues   d and rho, float64 (R + 1,)
    num_rows      of X
    dim           columns of X
    """

    inverse_unit: float
    eigenvalues: np.ndarray
    alpha: float
    eta: float
    num_rows: int
    dim: int


class Scales(NamedTuple):
    """The diagonal of M, `kept` (R,), and e^-1/2, `root` (R,): float64."""

    kept: np.ndarray
    root: np.ndarray


class Floors(NamedTuple):
    """What eigenvalues do not fall below: c relative to the largest; d and rho absolutely, and relative to
    the largest of d."""

    relative_c: float
    epsilon: float
    delta: float


@njit(nogil=True, cache=True)
def second_moment(gram, trace, side, tolerance, z, scales):
    """Equations (8) and (9): fills z (R, R) and `scales` from S (2R, 2R), tr(X X') and d and rho.

    Returns (u, whether u and all of S are finite, whether rows of V are orthonormal to within `tolerance`).
    """
    eigenvalues, alpha, eta, num_rows, dim = side.eigenvalues, side.alpha, side.eta, side.num_rows, side.dim
    inverse_unit, kept, root = side.inverse_unit, scales.kept, scales.root
    rank, finite, orthonormal = len(kept), True, True
    unit = eta / num_rows * trace + (1 - eta) * (dim * eigenvalues[rank] + eigenvalues[:rank].sum())
    if not np.isfinite(unit):
        return unit, False, True
    ratio, new, old = 1 / (inverse_unit * unit), eta / num_rows, 1 - eta
    beta = (eigenvalues[rank] * (1 + alpha) + alpha / dim * eigenvalues[:rank].sum()) / unit
    for i in range(rank):
        d = eigenvalues[i] / unit
        kept[i] = old * (d + eigenvalues[rank] / unit)
        root[i] = np.sqrt(beta / d + 1)
    for i in range(rank):
        for j in range(rank):
            k = np.float64(gram[i, j])
            across = np.float64(gram[i, rank + j])
            back = np.float64(gram[j, rank + i])
            own = np.float64(gram[rank + i, rank + j])
            finite = finite and np.isfinite(k) and np.isfinite(across) and np.isfinite(own)
            orthonormal = orthonormal and abs(own * root[i] * root[j] - (i == j)) <= tolerance
            cross = root[i] * root[j] * new * ratio * (across * kept[j] + back * kept[i])
            z[i, j] = (
                new * root[i] * k * ratio * ratio * (new * root[j])
                + cross
                + (kept[i] ** 2 if i == j else 0.0)
            )
    return unit, finite, orthonormal


@njit(nogil=True, cache=True)
def mixture(c, u, unit, side, scales, floors, mix, following):
    """Equations (10) to (12): fills A `mix` (R, 2R) and d' and rho' `following` (R + 1,), from ascending c
    and the columns of u."""
    eigenvalues, alpha, eta, num_rows, dim = side.eigenvalues, side.alpha, side.eta, side.num_rows, side.dim
    inverse_unit, kept, root = side.inverse_unit, scales.kept, scales.root
    rank, old, new = len(kept), 1 - eta, eta / num_rows
    ratio, floored = 1 / (inverse_unit * unit), np.empty(rank)
    floor = max((old * eigenvalues[rank] / unit) ** 2, floors.relative_c * c[rank - 1])
    for i in range(rank):
        floored[i] = max(c[rank - 1 - i], floor)
    rho = (1 - np.sqrt(floored).sum()) / (dim - rank)
    bound = max(floors.epsilon, floors.delta * np.sqrt(floored[0]) * unit)
    for i in range(rank):
        following[i] = max((np.sqrt(floored[i]) - rho) * unit, bound)
    following[rank] = max(rho * unit, bound)
    beta = following[rank] * (1 + alpha) + alpha / dim * following[:rank].sum()
    for i in range(rank):
        length = np.sqrt(1 / (beta / following[i] + 1) / floored[i])
        for j in range(rank):
            left = length * u[j, rank - 1 - i] * root[j]
            mix[i, j] = left * new * ratio
            mix[i, rank + j] = left * kept[j]
