r"""Natural gradient on a GPU: the method of `pyasr.nn.layers.natural_gradient` for several sides in a batch,
without waiting for the host.

Equations (9) to (12) of that module contain an eigen-decomposition of an R x R matrix, which the host
computes. If a step waited for it, the GPU would be idle. Here, the host has a whole update period for it. It
receives a Gram matrix of a minibatch and returns a matrix that mixes rows:

    S  = [J; W] [J; W]'  (2R x 2R),  with the blocks  K = J J',  L = J W',  W W';   and tr(X X')         (1)
    W' = A [J; W],           A = E'^1/2 C^-1/2 U' E^-1/2 [ (eta / N) I,  M ]   (R x 2R)                  (2)

The lag is well defined: S of a minibatch in which F is updated uses the W of that minibatch, and (2) takes
effect at the beginning of the next such minibatch, `update_period` minibatches later. With `update_period` 1,
every minibatch uses the same W as without the lag. The first minibatches, which all update F, are processed
by `OnlineNaturalGradient`, which hands over its state.

Orthonormality (see "Numerical hazards" there) is checked one update later: the block W W' is E^1/2 O E^1/2
for the W in use. If O differs from the unit matrix by more than the tolerance, the rows are mixed again, by
G = E^1/2 B^-1 E^-1/2 with O = B B' (Cholesky): the host uses G K G' and G L G' instead of K and L, and
returns [A_J G, A_W G]. If B does not exist or its inverse is too large, B^-1 is replaced by an inverse root
of O from its eigenvectors.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyasr.nn.layers.natural_gradient import (
    DELTA,
    EPSILON,
    MAX_INVERSE_CHOLESKY,
    MIN_RELATIVE_C,
    ORTHONORMAL_TOLERANCE,
    OnlineNaturalGradient,
    root_of_ratio,
    smoothed,
)
from pyasr.tensor.gram_kernels import Floors, Scales, Side, mixture, second_moment
from pyasr.tensor.step_kernels import residual


@dataclass(frozen=True)
class HostInput:
    """The host's input from a minibatch.

    gram, traces   S of each side (B, 2R, 2R) and tr(X X') (B,), valid after `wait`
    inverse_units  (B,): factors on J that keep S within the range of float32
    num_rows       N
    """

    gram: np.ndarray
    traces: np.ndarray
    inverse_units: np.ndarray
    num_rows: int
    wait: Callable[[], object] = lambda: None


Result = tuple[np.ndarray, np.ndarray, float]  # A (R, 2R), d' and rho' (R + 1,), the next unit of J
Pending = tuple[Tensor, list[tuple[Tensor, Tensor, float]]]  # J (B, R, width), results as tensors


class LaggedNaturalGradient:
    """B sides of equal shape.

    sides    initial state; `write_back` writes the present state to them
    ones     whether a column of ones is appended to X; the column is never stored
    width    columns of X in memory; those from D on are zero
    workers  threads of the host; None: the caller computes

    In a minibatch with an update of F, the host copies the result of `take` to `mix` and `inverse_units`; the
    device executes `begin`, `projections` and `update_gram`; the host copies `gram` and `traces` and calls
    `start_solving`. Other minibatches need only `projections`.
    """

    def __init__(
        self,
        sides: list[OnlineNaturalGradient],
        ones: bool,
        width: int,
        dtype: torch.dtype,
        workers: ThreadPoolExecutor | None = None,
    ):
        self.sides, self.ones, self.workers = sides, ones, workers
        factors = torch.stack([side.state[0] for side in sides])
        self.num, self.rank, self.dim = factors.shape
        self.columns = self.dim - ones
        self.rows = factors.new_zeros(self.num, 2 * self.rank, width + ones)  # [J; W]
        self.w = factors.new_empty(self.num, self.rank, width, dtype=dtype)
        self.last = factors.new_empty(self.num, self.rank, 1, dtype=dtype) if ones else None
        self.mix = torch.eye(2 * self.rank, device=factors.device, dtype=factors.dtype)[self.rank :].repeat(
            self.num, 1, 1
        )
        self.traces = factors.new_zeros(self.num)
        self.gram = factors.new_zeros(self.num, 2 * self.rank, 2 * self.rank)
        self.inverse_units = factors.new_ones(self.num, 1, 1)
        self.eigenvalues = [side.state[1].numpy().copy() for side in sides]
        self._futures: list[Future] = []
        self.updates, self.num_rows = False, 0
        self.factor[..., : self.columns] = factors[..., : self.columns]
        if ones:
            self.factor[..., -1] = factors[..., -1]
        self._narrow()

    @property
    def factor(self) -> Tensor:
        """W of each side, (B, R, width), followed by the column of ones; a view."""
        return self.rows[:, self.rank :]

    def _narrow(self) -> None:
        """Copy W to the type of the data."""
        self.w.copy_(self.factor[..., : self.w.shape[2]])
        if self.last is not None:
            self.last.copy_(self.factor[..., -1:])

    def begin(self) -> None:
        """Equation (2), on the device."""
        with _all_of_float32():
            self.factor.copy_(torch.bmm(self.mix, self.rows))
        self._narrow()

    def projections(self, x: Tensor) -> Tensor:
        """H' (B, R, N) of X (B, N, D)."""
        self.num_rows = x.shape[1]
        ht = self.w @ x.mT
        return ht if self.last is None else ht.add_(self.last)

    def precondition(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """(Xhat (N, D), transformed column of ones (N,), g) of one side's X (N, D); computes S if
        `updates`."""
        x = x.contiguous()[None]
        ht, xhat = self.projections(x), torch.empty_like(x)
        before, after = residual(x, ht, self.w, xhat).sum((1, 2))
        column = None
        if self.last is not None:
            column = 1 - (self.last.mT @ ht)[0, 0]
            before = before + x.shape[1]
            after = after + torch.linalg.vector_norm(column, dtype=after.dtype).square()
        if self.updates:
            self.update_gram(x, ht)
            self.traces.copy_(before)
        return xhat[0], column, root_of_ratio(before, after)

    def update_gram(self, x: Tensor, ht: Tensor) -> None:
        """S of equation (1), on the device; the caller fills `traces`."""
        j = self.rows[:, : self.rank]
        j[..., : x.shape[2]] = wide_product(ht, x, j.dtype)
        if self.ones:
            j[..., -1] = ht.sum(2, dtype=j.dtype)
        j.mul_(self.inverse_units)
        with _all_of_float32():
            torch.bmm(self.rows, self.rows.mT, out=self.gram)
        j.nan_to_num_(0.0, 0.0, 0.0)  # so that 0 times J is 0

    def start_solving(self, host_input: HostInput) -> None:
        """Start to compute A of each side, on other cores of the host if there are `workers`."""
        submit = self.workers.submit if self.workers else _at_once
        self._futures = [submit(self._solve, number, host_input) for number in range(self.num)]

    def _solve(self, number: int, host_input: HostInput) -> Result:
        host_input.wait()
        side = self.sides[number]
        return next_mix(
            host_input.gram[number],
            float(host_input.traces[number]),
            float(host_input.inverse_units[number]),
            self.eigenvalues[number],
            side.alpha,
            side.eta(host_input.num_rows),
            host_input.num_rows,
            self.dim,
        )

    def results(self) -> list[Result]:
        """Wait for the result of each side; empty if none was requested since the last `take`."""
        return [future.result() for future in self._futures]

    def take(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(A (B, R, 2R), 1 / unit (B,)) for `mix` and `inverse_units`; sets the eigenvalues to those of W'.
        None without a result."""
        if not self._futures:
            return None
        mixes, self.eigenvalues, units = map(list, zip(*self.results()))
        self._futures = []
        return np.stack(mixes), 1 / np.array(units)

    def pending(self) -> Pending:
        """The computation in progress, as tensors and plain values for a checkpoint; waits for results."""
        results = [
            (torch.from_numpy(mix), torch.from_numpy(eigenvalues), unit)
            for mix, eigenvalues, unit in self.results()
        ]
        return self.rows[:, : self.rank].clone(), results

    def restore(self, pending: Pending) -> None:
        """Restore the result of `pending`, after the sides have read that of `write_back`."""
        j, results = pending
        self.rows[:, : self.rank] = j.to(self.rows.device)
        self._futures = [
            _at_once(lambda result=(mix.numpy(), eigenvalues.numpy(), unit): result)
            for mix, eigenvalues, unit in results
        ]

    def write_back(self) -> None:
        """Write W and its eigenvalues to the sides."""
        for side, factor, eigenvalues in zip(self.sides, self.factor, self.eigenvalues):
            parts = [factor[:, : self.columns], factor[:, -1:]] if self.ones else [factor[:, : self.columns]]
            side.set(torch.cat(parts, 1), torch.from_numpy(eigenvalues))


def _at_once(function: Callable, *arguments) -> Future:
    """Like a pool's `submit`, but computed by the caller."""
    future: Future = Future()
    future.set_result(function(*arguments))
    return future


@contextlib.contextmanager
def _all_of_float32() -> Iterator[None]:
    """Multiply float32 on a GPU with the full mantissa, whatever `--precision` is: otherwise, W would lose
    digits in every update."""
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, False
    try:
        yield
    finally:
        settings.allow_tf32 = before


def wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Products of batches a (B, M, K) and b (B, K, N), accumulated and returned in `dtype`."""
    if a.dtype == dtype:
        return a @ b
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def next_mix(
    gram: np.ndarray,
    trace: float,
    inverse_unit: float,
    eigenvalues: np.ndarray,
    alpha: float,
    eta: float,
    num_rows: int,
    dim: int,
) -> Result:
    """The result for S (2R, 2R); it changes nothing if S is not finite."""
    rank = len(eigenvalues) - 1
    z, scales = np.empty((rank, rank)), Scales(np.empty(rank), np.empty(rank))
    side = Side(inverse_unit, eigenvalues, alpha, eta, num_rows, dim)
    unit, is_finite, is_orthonormal = second_moment(gram, trace, side, ORTHONORMAL_TOLERANCE, z, scales)
    if not is_finite:
        return np.eye(rank, 2 * rank, rank), eigenvalues, 1 / inverse_unit
    repair = None
    if not is_orthonormal:
        repair = _repair(gram[rank:, rank:].astype(np.float64), smoothed(eigenvalues, alpha, dim))
        repaired = np.kron(np.eye(2), repair)
        second_moment(repaired @ gram @ repaired.T, trace, side, math.inf, z, scales)
    c, u = torch.linalg.eigh(torch.from_numpy(z))
    mix, following = np.empty((rank, 2 * rank)), np.empty(rank + 1)
    mixture(c.numpy(), u.numpy(), unit, side, scales, Floors(MIN_RELATIVE_C, EPSILON, DELTA), mix, following)
    return mix if repair is None else mix @ repaired, following, unit


def _repair(own: np.ndarray, e: np.ndarray) -> np.ndarray:
    """G, from W W' (R, R)."""
    root = np.sqrt(e)
    o = own / root[:, None] / root
    cholesky, info = torch.linalg.cholesky_ex(torch.from_numpy(o))
    inverse = torch.linalg.solve_triangular(
        cholesky, torch.eye(len(o), dtype=torch.float64), upper=False
    ).numpy()
    if int(info) or not inverse.max() < MAX_INVERSE_CHOLESKY:
        values, vectors = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(o)))
        inverse = (vectors / np.sqrt(np.maximum(values, 1 / MAX_INVERSE_CHOLESKY**2))) @ vectors.T
    return root[:, None] * inverse / root
