r"""Convergence of P ranks to their mean under the mixings of a topology.

Let D(K) be the maximum fraction of the ranks' disagreement (their distance from the mean over ranks) that can
remain after K rounds:

    D(K) = || W_(K-1) ... W_0 - 11'/P ||_2 ,   which is || A_(K-1) ... A_0 ||_2 with A_k = W_k - 11'/P,
                                               as W_k 1 = 1 and 1'W_k = 1'

With C rounds in a cycle and rho the spectral radius of the product of a cycle, D(K) decreases as rho^(K/C).
rho^(1/C) is the *contraction* of one mixing, and 1 - rho^(1/C) is the spectral gap. If the product is 0, a
cycle ends in the exact mean.

Most rounds treat all ranks in the same way: W_k does not change if all ranks are shifted by b places (b = 1:
rings, exponential; 2: pairs). Such a matrix is block circulant. A discrete Fourier transform over P/b places
decomposes it into P/b matrices of b x b and preserves products and norms. So thousands of ranks take little
time; if there is no such b, b is P.

The rounds of a random topology are drawn over all orders of the ranks, for which E[W'W] = a 1 + (1 - a)
11'/P. For any parameters, the fraction a^(K/2) of the root mean square of their disagreement remains after K
rounds, and sqrt(a) is the contraction (IBM, arXiv:2002.01119, Section 3, for the random ring).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np

from pyasr.parallel.topology.topologies import MixingTopology, Round, matrix, rows_of

_ROUNDING = 1e-12  # smaller norms are rounding errors
_PRIME = 2**31 - 1  # the product of two smaller numbers fits into int64


def models_sent(topology: MixingTopology, size: int) -> float:
    """Number of models that the busiest rank sends in a mixing. The mean over all ranks counts as a ring
    all-reduce."""
    if topology.name == "complete" or size == 1:
        return 2 * (size - 1) / size
    cycle = (topology.round(size, k) for k in range(topology.cycle(size)))
    return float(
        max(sum(sources != np.arange(size) for sources, _ in mixing.parts).max() for mixing in cycle)
    )


def disagreement_of(topology: MixingTopology, size: int) -> Disagreement | RandomDisagreement:
    """The decrease of the disagreement of `size` ranks. Raises UserError if the topology does not support
    this number."""
    return (RandomDisagreement if topology.random else Disagreement)(topology, size)


class RandomDisagreement:
    """Decrease of the root mean square of the disagreement for random rounds; see `Disagreement`."""

    def __init__(self, topology: MixingTopology, size: int):
        w = matrix(topology.round(size, 0))
        square = (np.square(w).sum() - 1) / (size - 1) if size > 1 else 0.0
        self.contraction = math.sqrt(square) if square > _ROUNDING else 0.0
        self.exact_after = None if self.contraction else min(size - 1, 1)

    def mixings_until(self, share: float) -> int:
        """The smallest K after which less than the fraction `share` remains, 0 < share <= 1."""
        return (
            self.exact_after
            if self.exact_after is not None
            else math.floor(math.log(share) / math.log(self.contraction)) + 1
        )


class Disagreement:
    """Decrease of the disagreement for known rounds.

    contraction   rho^(1/C); 0 if rounds end in the exact mean
    exact_after   number of mixings after which all ranks have the exact mean; None: never
    """

    def __init__(self, topology: MixingTopology, size: int):
        self._rounds = [
            topology.round(size, k) for k in range(1 if topology.rotates else topology.cycle(size))
        ]
        self._block = next(
            b
            for b in (1, 2, size)
            if size % b == 0 and (b == size or all(_is_invariant(mixing, b) for mixing in self._rounds))
        )
        self._rows = (np.arange(self._block) + topology.rotates) % size
        self._start = _blocks(np.eye(self._block, size) - 1 / size)
        self.exact_after = _exact_after(topology, size)
        self._powers = []  # powers 1, 2, 4, ... of the product of a cycle
        if self.exact_after is None:
            self._powers.append(
                reduce(lambda product, k: self._factor(k) @ product, range(len(self._rounds)), self._start)
            )
        self.contraction = _radius(self._powers[0]) ** (1 / len(self._rounds)) if self._powers else 0.0

    def mixings_until(self, share: float) -> int:
        """The smallest K with D(K) < share, 0 < share <= 1: whole cycles by bisection, then single rounds."""
        num_cycles, product = self._whole_cycles(share)
        num = 0
        while _is_norm_at_least(product, share):
            product = self._factor(num % len(self._rounds)) @ product
            num += 1
        return num_cycles * len(self._rounds) + num

    def _whole_cycles(self, share: float) -> tuple[int, np.ndarray]:
        """The maximum number of cycles after which at least `share` remains, and their product; 0 if cycles
        end in the mean."""
        while self._powers and _is_norm_at_least(self._powers[-1], share):
            self._powers.append(self._powers[-1] @ self._powers[-1])
        num, product = 0, self._start
        for i, power in reversed(list(enumerate(self._powers))):
            longer = power @ product
            if _is_norm_at_least(longer, share):
                num, product = num + (1 << i), longer
        return num, product

    def _factor(self, k: int) -> np.ndarray:
        """A_k, (P / b, b, b).

        If round k is round 0 shifted by k places, W_k = S^k W_0 S^-k, and a product of K rounds is S^K (S^-1
        W_0)^K: up to the order of its rows a power of one matrix, which is used as W_k.
        """
        return _blocks(rows_of(self._rounds[k], self._rows) - 1 / len(self._rounds[k].own))


def _exact_after(topology: MixingTopology, size: int) -> int | None:
    """The first round of a cycle after which arbitrary numbers are equal, computed in a finite field to avoid
    rounding errors."""
    values = np.random.default_rng(size).integers(_PRIME, size=size)
    for k in range(topology.cycle(size) + 1):
        if (values == values[0]).all():
            return k
        own, parts = topology.round(size, k)
        values = (
            sum(
                _in_field(weights, size) * values[sources] % _PRIME
                for sources, weights in [(np.arange(size), own), *parts]
            )
            % _PRIME
        )
    return None


def _in_field(weights: np.ndarray, size: int) -> np.ndarray:
    """Fractions with denominators up to `size` + 1, modulo the prime."""
    distinct, places = np.unique(weights, return_inverse=True)
    fractions = [Fraction(weight).limit_denominator(size + 1) for weight in distinct.tolist()]
    return np.array([f.numerator * pow(f.denominator, -1, _PRIME) % _PRIME for f in fractions])[places]


def _is_invariant(mixing: Round, shift: int) -> bool:
    """Whether W does not change if all ranks are shifted by `shift` places."""
    size = len(mixing.own)
    steps = [(sources - np.arange(size)) % size for sources, _ in mixing.parts]
    return all(
        np.array_equal(values, np.roll(values, shift))
        for values in (mixing.own, *steps, *(weights for _, weights in mixing.parts))
    )


def _blocks(rows: np.ndarray) -> np.ndarray:
    """The blocks of a block circulant matrix with the first b rows `rows` (b, P): (P / b, b, b)."""
    block, size = rows.shape
    if block == size:
        return rows[None]
    return np.fft.fft(rows.reshape(block, size // block, block), axis=1).swapaxes(0, 1)


def _is_norm_at_least(blocks: np.ndarray, share: float) -> bool:
    """Whether the 2-norm of the matrix with these blocks is at least `share`; bounds avoid most of its
    computations."""
    squares = np.square(np.abs(blocks)).sum(axis=2)
    if squares.max() >= share**2:
        return True
    return bool(
        squares.sum(axis=1).max() >= share**2 and np.linalg.norm(blocks, 2, axis=(1, 2)).max() >= share
    )


def _radius(blocks: np.ndarray) -> float:
    """Spectral radius of the matrix with these blocks."""
    return float(np.abs(np.linalg.eigvals(blocks)).max())
