"""Alignment of a hypothesis with its reference, with the counts of NIST's sclite.

The alignment has the lowest cost with 0 for a correct word, 3 for an insertion, 3 for a deletion and 4 for a
substitution. Alignments of equal cost can differ in their number of errors (three substitutions cost as much
as two insertions, two deletions and a correct word), so the choice among them matters: forward over both word
sequences, a cell prefers the diagonal, then an insertion, then a deletion. With that order all four counts
are sclite's own (sctk 2.4.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyasr.base.compiled.array_copies import copy_into
from pyasr.base.compiled.kernels import njit

INSERTION_COST, DELETION_COST, SUBSTITUTION_COST = 3, 3, 4
_DIAGONAL, _INSERTION, _DELETION = 0, 1, 2


@dataclass(frozen=True)
class Counts:
    """Numbers of correct, substituted, inserted and deleted words of one or more utterances."""

    correct: int = 0
    sub: int = 0
    ins: int = 0
    dele: int = 0

    @property
    def num_words(self) -> int:
        """Number of words of the reference."""
        return self.correct + self.sub + self.dele

    @property
    def errors(self) -> int:
        """Substitutions, insertions and deletions."""
        return self.sub + self.ins + self.dele

    @property
    def wer(self) -> float:
        """Errors in per cent of the reference words. With an empty reference, 0, or infinite if there are
        insertions."""
        if self.num_words:
            return 100.0 * self.errors / self.num_words
        return float("inf") if self.errors else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct, self.sub + other.sub, self.ins + other.ins, self.dele + other.dele
        )


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """(reference word, hypothesis word) pairs in order; None on the left marks an insertion, on the right a
    deletion."""
    ref, hyp = _numbered(reference, hypothesis)
    pairs, i, j = [], len(reference), len(hypothesis)
    for move in _moves(ref, hyp):
        i, j = i - (move != _INSERTION), j - (move != _DELETION)
        pairs.append(
            (None if move == _INSERTION else reference[i], None if move == _DELETION else hypothesis[j])
        )
    return pairs[::-1]


def count(reference: Sequence[str], hypothesis: Sequence[str]) -> Counts:
    """The counts of one utterance."""
    return Counts(*map(int, _count(*_numbered(reference, hypothesis))))


def count_many(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> np.ndarray:
    """int64 (num_utterances, 4): correct, substituted, inserted, deleted words of each pair."""
    ids: dict[str, int] = {}
    flat = [
        np.fromiter((ids.setdefault(word, len(ids)) for words in side for word in words), np.int64)
        for side in (references, hypotheses)
    ]
    ends = [np.cumsum([0, *map(len, side)]) for side in (references, hypotheses)]
    return _count_many(flat[0], ends[0], flat[1], ends[1])


def _numbered(reference, hypothesis):
    ids: dict[str, int] = {}
    return tuple(
        np.fromiter((ids.setdefault(word, len(ids)) for word in words), np.int64)
        for words in (reference, hypothesis)
    )


@njit(nogil=True, cache=True)
def _best_moves(ref, hyp):
    """int8 (num_ref + 1, num_hyp + 1): the move that reaches each cell at the lowest cost."""
    n, m = len(ref), len(hyp)
    move = np.zeros((n + 1, m + 1), np.int8)
    above = INSERTION_COST * np.arange(m + 1)
    move[0, 1:] = _INSERTION
    for i in range(1, n + 1):
        diagonal, above[0] = above[0], DELETION_COST * i
        move[i, 0] = _DELETION
        for j in range(1, m + 1):
            best, how = diagonal + (0 if ref[i - 1] == hyp[j - 1] else SUBSTITUTION_COST), _DIAGONAL
            if above[j - 1] + INSERTION_COST < best:
                best, how = above[j - 1] + INSERTION_COST, _INSERTION
            if above[j] + DELETION_COST < best:
                best, how = above[j] + DELETION_COST, _DELETION
            diagonal, above[j], move[i, j] = above[j], best, how
    return move


@njit(nogil=True, cache=True)
def _moves(ref, hyp):
    """Moves of the best alignment, from the end to the start."""
    move, i, j = _best_moves(ref, hyp), len(ref), len(hyp)
    path = np.empty(i + j, np.int8)
    size = 0
    while i or j:
        path[size] = move[i, j]
        i, j, size = i - (path[size] != _INSERTION), j - (path[size] != _DELETION), size + 1
    return path[:size]


@njit(nogil=True, cache=True)
def _count(ref, hyp):
    """int64 (4,): correct, substituted, inserted, deleted."""
    counts = np.zeros(4, np.int64)
    i, j = len(ref), len(hyp)
    for how in _moves(ref, hyp):
        i, j = i - (how != _INSERTION), j - (how != _DELETION)
        if how == _DIAGONAL:
            counts[0 if ref[i] == hyp[j] else 1] += 1
        else:
            counts[2 if how == _INSERTION else 3] += 1
    return counts


@njit(nogil=True, cache=True)
def _count_many(refs, ref_ends, hyps, hyp_ends):
    counts = np.empty((len(ref_ends) - 1, 4), np.int64)
    for k in range(len(counts)):
        of_pair = _count(refs[ref_ends[k] : ref_ends[k + 1]], hyps[hyp_ends[k] : hyp_ends[k + 1]])
        copy_into(counts[k], 0, of_pair)
    return counts
