"""Alignment of a reference network with a hypothesis network, with the counts of NIST's sclite -F -D.

The alignment has the lowest cost over all paths of both networks: equal words cost 0, a substitution 4, an
insertion or deletion 3, or 2 if the word is optional, or 0.001 if it is `@`. An optional word without a
counterpart counts as correct; so does an inserted optional word of the hypothesis. `@` is not counted.

Alignments of equal cost can differ in their counts, so ties are broken as sclite breaks them: costs are
float32, a substitution is preferred to an insertion and an insertion to a deletion, and among predecessors
the first is preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.score.hub5.word_network import ScoredWord, WordNetwork

_EQUAL, _NULL, _BOTH_NULL, _OPTIONAL, _WORD, _DIFFERENT = 0.0, 0.001, 1.0, 2.0, 3.0, 4.0


class EditKind(Enum):
    """Kinds of steps of an alignment, in the order of the columns of counts."""

    CORRECT, SUB, INS, DEL = range(4)


@dataclass(frozen=True)
class Edit:
    """A pair of aligned words; None marks an insertion or a deletion."""

    reference: ScoredWord | None
    hypothesis: ScoredWord | None
    kind: EditKind


def align_networks(reference: WordNetwork, hypothesis: WordNetwork) -> list[Edit]:
    """The steps of the best alignment, in order."""
    pairing = _pairing_costs(reference, hypothesis)
    deleting, inserting = (
        np.array([0.0, *map(_cost, side.words)], np.float32) for side in (reference, hypothesis)
    )
    sides = (_NetworkArcs(side.before, side.offsets, side.last) for side in (reference, hypothesis))
    path = _best_path(pairing, deleting, inserting, *sides)
    pairs = (
        (reference.words[i - 1] if i else None, hypothesis.words[j - 1] if j else None)
        for i, j in path[::-1].tolist()
    )
    return [step for pair in pairs if (step := _step(*pair))]


def count_networks(reference: WordNetwork, hypothesis: WordNetwork) -> tuple[int, int, int, int]:
    """(correct, substituted, inserted, deleted) words."""
    kinds = [step.kind for step in align_networks(reference, hypothesis)]
    correct, substituted, inserted, deleted = map(kinds.count, EditKind)
    return correct, substituted, inserted, deleted


def _cost(word: ScoredWord) -> float:
    """The cost of deleting or inserting a word."""
    return _NULL if word.is_null else _OPTIONAL if word.optional else _WORD


def _step(reference: ScoredWord | None, hypothesis: ScoredWord | None) -> Edit | None:
    """The step of a pair; None if it contains no word to count."""
    if all(word is None or word.is_null for word in (reference, hypothesis)):
        return None
    if reference and hypothesis:
        kind = EditKind.CORRECT if reference.equals(hypothesis) else EditKind.SUB
    elif (only := reference or hypothesis) and only.optional:
        kind = EditKind.CORRECT
    else:
        kind = EditKind.DEL if reference else EditKind.INS
    return Edit(reference, hypothesis, kind)


def _pairing_costs(reference: WordNetwork, hypothesis: WordNetwork) -> np.ndarray:
    """float32 (num_reference + 1, num_hypothesis + 1): the cost of each pair of words; row and column 0 are
    not used."""
    costs = np.full((len(reference.words) + 1, len(hypothesis.words) + 1), _DIFFERENT, np.float32)
    places: dict[str, list[int]] = {}
    for j, word in enumerate(hypothesis.words, 1):
        places.setdefault(word.spelling, []).append(j)
    fragments = [j for j, word in enumerate(hypothesis.words, 1) if word.fragment]
    everywhere = range(1, len(hypothesis.words) + 1)
    for i, word in enumerate(reference.words, 1):
        for j in everywhere if word.fragment else (*places.get(word.spelling, ()), *fragments):
            other = hypothesis.words[j - 1]
            if word.equals(other):
                costs[i, j] = _BOTH_NULL if word.is_null and other.is_null else _EQUAL
    return costs


class _NetworkArcs(NamedTuple):
    """The arrays of a `WordNetwork`."""

    before: np.ndarray
    offsets: np.ndarray
    last: np.ndarray


@njit(nogil=True, cache=True)
def _best_path(pairing, deleting, inserting, reference, hypothesis):
    """int32 (num_steps, 2): the aligned arcs of both networks from the end to the start, 0 for none."""
    costs, back_a, back_b = _costs(pairing, deleting, inserting, reference, hypothesis)
    a, b = reference.last[0], hypothesis.last[0]
    for i in reference.last:
        for j in hypothesis.last:
            if costs[i, j] < costs[a, b]:
                a, b = i, j
    path = np.empty((pairing.shape[0] + pairing.shape[1], 2), np.int32)
    size = 0
    while a > 0 or b > 0:
        next_a, next_b = back_a[a, b], back_b[a, b]
        path[size, 0] = a if next_a != a else 0
        path[size, 1] = b if next_a == a or next_b != b else 0
        a, b, size = next_a, next_b, size + 1
    return path[:size]


@njit(nogil=True, cache=True)
def _costs(pairing, deleting, inserting, reference, hypothesis):
    """(lowest cost, previous arc of the reference, previous arc of the hypothesis) of each pair of arcs."""
    before_a = reference.before
    offsets_a = reference.offsets
    before_b = hypothesis.before
    offsets_b = hypothesis.offsets
    shape, none = pairing.shape, np.float32(np.inf)
    costs, back_a, back_b = np.full(shape, none), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    costs[0, 0] = 0.0
    for a in range(shape[0]):
        for b in range(shape[1]):
            if a == 0 and b == 0:
                continue
            paired, deleted, inserted = none, none, none
            paired_a, paired_b, deleted_a, inserted_b = 0, 0, 0, 0
            for i in before_a[offsets_a[a] : offsets_a[a + 1]]:
                if costs[i, b] < deleted:
                    deleted, deleted_a = costs[i, b], i
                for j in before_b[offsets_b[b] : offsets_b[b + 1]]:
                    if costs[i, j] < paired:
                        paired, paired_a, paired_b = costs[i, j], i, j
            for j in before_b[offsets_b[b] : offsets_b[b + 1]]:
                if costs[a, j] < inserted:
                    inserted, inserted_b = costs[a, j], j
            paired, deleted, inserted = paired + pairing[a, b], deleted + deleting[a], inserted + inserting[b]
            if paired <= deleted and paired <= inserted:
                costs[a, b], back_a[a, b], back_b[a, b] = paired, paired_a, paired_b
            elif deleted < inserted:
                costs[a, b], back_a[a, b], back_b[a, b] = deleted, deleted_a, b
            else:
                costs[a, b], back_a[a, b], back_b[a, b] = inserted, a, inserted_b
    return costs, back_a, back_b
