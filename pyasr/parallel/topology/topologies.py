r"""Mixing topologies: which ranks average with which.

In round k = 0, 1, ... of a mixing the parameters x_r of P ranks become

    x_r  <-  sum_s W_k[r, s] x_s

with W_k doubly stochastic: rows and columns add up to 1, so the mean over ranks is preserved.

A topology is a function of P and k that returns the round: W_k as the messages that each rank receives. In
all topologies here, a rank sends as many messages as it receives.

| name               | W_k                                                         |
|--------------------|-------------------------------------------------------------|
| complete           | 11'/P                                                       |
| butterfly          | 1/2 self, 1/2 rank r xor 2^(k mod log2 P); P a power of two |
| ring               | 1/2 self, 1/2 left neighbour: directed                      |
| hopping-ring       | 1/2 self, 1/2 rank r - s, s = 1, 2, ..., P - 1, 1, ...      |
| fixed-ring         | 1/3 self, 1/3 left, 1/3 right neighbour                     |
| random-ring        | the same on a ring in random order, redrawn every round     |
| pairs              | 1/2 self, 1/2 left or right neighbour, alternating          |
| random-pairs       | 1/2 self, 1/2 a random partner, redrawn every round         |
| exponential        | 1/2 self, 1/2 rank r - 2^(k mod log2 P)                     |
| static-exponential | equal parts of self and ranks r - 1, r - 2, r - 4, ...      |
| base2              | pairs with weights that end in the exact mean for any P     |

Sources: Su, Chen, Xu, arXiv:1507.01239 (complete: all-reduce); Su, Chen, poster (butterfly, ring); Zhao,
Canny 2013 (butterfly); Su's Kaldi (hopping-ring); IBM, arXiv:1904.04956 (fixed-ring; pairs, where an odd rank
sits out), arXiv:2002.01119 (random-ring) and arXiv:2112.01433 (random-pairs); Ying et al., arXiv:2110.13363
(exponential, there called one-peer exponential; static-exponential); Takezawa et al., arXiv:2305.11420 (the
idea of base2, see `base2`).

`pyasr.parallel.topology.agreement` computes how fast the ranks converge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError


class RoundPart(NamedTuple):
    """One message for each rank: from rank sources[r], with weight weights[r]; sources is a permutation,
    weights (P,)."""

    sources: np.ndarray
    weights: np.ndarray


class Round(NamedTuple):
    """A mixing round: each rank keeps own[r] of its parameters, float64 (P,), and adds its parts."""

    own: np.ndarray
    parts: tuple[RoundPart, ...]


@dataclass(frozen=True)
class MixingTopology:
    """A topology by name. `rounds(P, k, seed)` returns its k-th round for P ranks, `cycle(P)` the number
    after which rounds repeat.

    random            whether rounds are drawn with the seed, the same on all ranks, and never repeat
    rotates           whether round k is round 0 with all ranks shifted by k places
    power_of_two      whether the number of ranks must be a power of two
    """

    name: str
    rounds: Callable[[int, int, int], Round]
    cycle: Callable[[int], int]
    random: bool = False
    rotates: bool = False
    power_of_two: bool = False

    def round(self, size: int, k: int, seed: int = 0) -> Round:
        """Round k of `size` ranks. Raises UserError if the topology does not support this number."""
        if self.power_of_two and size & (size - 1):
            raise UserError(
                f"{self.name} mixing takes 2, 4, 8, ... ranks, not {size}; base2 supports any number"
            )
        if size == 1:
            return Round(np.ones(1), ())
        return self.rounds(size, k, seed)


def matrix(mixing: Round) -> np.ndarray:
    """W, float64 (P, P)."""
    return rows_of(mixing, np.arange(len(mixing.own)))


def rows_of(mixing: Round, ranks: np.ndarray) -> np.ndarray:
    """The rows of W for these ranks, float64 (len(ranks), P)."""
    rows, places = np.zeros((len(ranks), len(mixing.own))), np.arange(len(ranks))
    rows[places, ranks] = mixing.own[ranks]
    for sources, weights in mixing.parts:
        rows[places, sources[ranks]] += weights[ranks]
    return rows


def _equal(sources: list[np.ndarray], size: int) -> Round:
    """Equal weights for a rank's own parameters and its messages; two messages from one rank are merged."""
    share, times = 1 / (len(sources) + 1), Counter(map(tuple, sources))
    return Round(
        np.full(size, share),
        tuple(RoundPart(np.array(source), np.full(size, num * share)) for source, num in times.items()),
    )


def _shifted(size: int, shift: int) -> np.ndarray:
    """The rank `shift` places to the left of each rank."""
    return (np.arange(size) - shift) % size


def _log2(size: int) -> int:
    """The smallest n > 0 with 2^n >= size."""
    return max((size - 1).bit_length(), 1)


def _complete(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, s) for s in range(1, size)], size)


def _butterfly(size: int, k: int, seed: int) -> Round:
    return _equal([np.arange(size) ^ (1 << k % _log2(size))], size)


def _ring(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, 1)], size)


def _hopping_ring(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, 1 + k % (size - 1))], size)


def _fixed_ring(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, 1), _shifted(size, -1)], size)


def _random_ring(size: int, k: int, seed: int) -> Round:
    order = generator(seed, "random-ring", k).permutation(size)
    left, right = np.empty(size, int), np.empty(size, int)
    left[order], right[order] = np.roll(order, 1), np.roll(order, -1)
    return _equal([left, right], size)


def _pairs(size: int, k: int, seed: int) -> Round:
    order = np.roll(np.arange(size), -(k % 2 if size % 2 == 0 else k % size))
    return _equal([_partners(order)], size)


def _random_pairs(size: int, k: int, seed: int) -> Round:
    return _equal([_partners(generator(seed, "random-pairs", k).permutation(size))], size)


def _partners(order: np.ndarray) -> np.ndarray:
    """Pair neighbours in `order`: the first and the second, the third and the fourth; a last has none."""
    partners = np.arange(len(order))
    first, second = order[: len(order) // 2 * 2].reshape(-1, 2).T
    partners[first], partners[second] = second, first
    return partners


def _exponential(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, 1 << k % _log2(size))], size)


def _static_exponential(size: int, k: int, seed: int) -> Round:
    return _equal([_shifted(size, 1 << i) for i in range(_log2(size))], size)


def _base2(size: int, k: int, seed: int) -> Round:
    rounds = base2(size)
    return rounds[k % len(rounds)]


@cache
def base2(size: int) -> list[Round]:
    """Rounds of pairs that end in the exact mean, for any number of ranks.

    The first m = 2^p ranks, with m the largest power of two, average among themselves by a butterfly. At the
    same time the other r = P - m ranks do the same (recursively). Then each of the r ranks is paired with one
    of the m with weight m / P, which gives that one (m A + r B) / P, the mean of all (A and B are the means
    of the two groups). The mean over the m ranks is the same, because each round preserves the mean over all
    ranks; one more butterfly distributes it.
    """
    return [_round_of_pairs(size, pairs) for pairs in _base2_pairs(0, size)] or [Round(np.ones(size), ())]


def _base2_pairs(begin: int, size: int) -> list[list[tuple[int, int, float]]]:
    """Rounds of the ranks begin, ..., begin + size - 1, each a list of (rank, other rank, its weight)."""
    power = 1 << (size.bit_length() - 1)
    rest = size - power
    butterfly = [
        [(begin + r, begin + (r ^ (1 << i)), 0.5) for r in range(power) if not r >> i & 1]
        for i in range(power.bit_length() - 1)
    ]
    if rest == 0:
        return butterfly
    others = _base2_pairs(begin + power, rest)
    separate = [_nth(butterfly, i) + _nth(others, i) for i in range(max(len(butterfly), len(others)))]
    return [*separate, [(begin + r, begin + power + r, power / size) for r in range(rest)], *butterfly]


def _nth(rounds: list, i: int) -> list:
    return rounds[i] if i < len(rounds) else []


def _round_of_pairs(size: int, pairs: list[tuple[int, int, float]]) -> Round:
    """For each pair (a, b, w): x_a <- (1 - w) x_a + w x_b, and x_b likewise; ranks without a partner keep
    their parameters."""
    sources, weights = np.arange(size), np.zeros(size)
    for a, b, weight in pairs:
        sources[a], sources[b] = b, a
        weights[a] = weights[b] = weight
    return Round(1 - weights, (RoundPart(sources, weights),))


def _one(size: int) -> int:
    return 1


TOPOLOGIES = {
    topology.name: topology
    for topology in (
        MixingTopology("complete", _complete, _one),
        MixingTopology("butterfly", _butterfly, _log2, power_of_two=True),
        MixingTopology("ring", _ring, _one),
        MixingTopology("hopping-ring", _hopping_ring, lambda size: max(size - 1, 1)),
        MixingTopology("fixed-ring", _fixed_ring, _one),
        MixingTopology("random-ring", _random_ring, _one, random=True),
        MixingTopology("pairs", _pairs, lambda size: 2 if size % 2 == 0 else size, rotates=True),
        MixingTopology("random-pairs", _random_pairs, _one, random=True),
        MixingTopology("exponential", _exponential, _log2),
        MixingTopology("static-exponential", _static_exponential, _one),
        MixingTopology("base2", _base2, lambda size: len(base2(size))),
    )
}


def topology_named(name: str) -> MixingTopology:
    """The topology with this name. Raises UserError if it does not exist."""
    if name not in TOPOLOGIES:
        raise UserError(f"--topology '{name}': unknown topology; choose one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]
