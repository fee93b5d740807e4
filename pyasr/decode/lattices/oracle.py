"""The path of a lattice with the fewest word errors (Kaldi's lattice-oracle): a lower bound for all scales
and language models.

With d(n, j) the minimum edit distance between the words of a path to state n and the first j words of the
reference,

    d(n, j) = min over arcs a into n of  d(s_a, j) + [w_a != eps],  d(s_a, j-1) + [w_a != r_j]  (words only),
              and  d(n, j-1) + 1

where insertions, substitutions and deletions cost 1 each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError

_MAX_CELLS = 1 << 30
NO_WORD = -1  # a word of the reference that the lattice cannot contain


@dataclass(frozen=True)
class Oracle:
    """Word ids of the best path, and its errors."""

    words: list[int]
    errors: int


def oracle(lattice, reference, classes: np.ndarray | None = None, name: str = "lattice") -> Oracle:
    """The path of a raw or compact lattice closest to `reference`, which has word ids, or NO_WORD for words
    without an id.

    classes  int32 (number of word ids): the id as which each word of the lattice is compared; 0 for words
             that are ignored

    For a lattice without paths, all words are deletions. Raises UserError if the table of states x words does
    not fit in memory.
    """
    reference = np.asarray(reference, np.int32)
    if lattice.num_states * (len(reference) + 1) > _MAX_CELLS:
        raise UserError(
            f"{name}: {lattice.num_states} states are too many to compare with {len(reference)} words; "
            "prune with a smaller --beam, or decode in segments"
        )
    ends = np.flatnonzero(np.isfinite(lattice.final_graph))
    if not len(ends):
        return Oracle([], len(reference))
    compared = lattice.words if classes is None else classes[lattice.words]
    distances, back = _distances(lattice.arc_offsets, lattice.targets, compared, reference)
    end = int(ends[np.argmin(distances[ends])])
    arcs = _trace(back, lattice.sources, end)
    words = lattice.words[arcs]
    return Oracle(words[words != 0].tolist(), int(distances[end]))


@njit(nogil=True, cache=True)
def _distances(offsets, targets, words, reference):
    """(d(n, J) of all states; int32 (num_states, J + 1): the last step of d(n, j)).

    Steps: 2 a + 1: arc a without a word of the reference; 2 a + 2: arc a with a word of the reference; 0: a
    deletion, or the start.
    """
    num_states, length = len(offsets) - 1, len(reference)
    far = np.iinfo(np.int32).max // 2
    d, back = np.full((num_states, length + 1), far, np.int32), np.zeros((num_states, length + 1), np.int32)
    d[0, 0] = 0
    for n in range(num_states):
        here = d[n]
        for j in range(1, length + 1):
            if here[j - 1] + 1 < here[j]:
                here[j], back[n, j] = here[j - 1] + 1, 0
        for a in range(offsets[n], offsets[n + 1]):
            there, word = d[targets[a]], words[a]
            for j in range(length + 1):
                if here[j] + (word != 0) < there[j]:
                    there[j], back[targets[a], j] = here[j] + (word != 0), 2 * a + 1
                if word != 0 and j and here[j - 1] + (word != reference[j - 1]) < there[j]:
                    there[j], back[targets[a], j] = here[j - 1] + (word != reference[j - 1]), 2 * a + 2
    return d[:, length].copy(), back


@njit(nogil=True, cache=True)
def _trace(back, sources, state):
    """Arcs of the best path to `state` for the whole reference."""
    arcs = [np.int64(0)]
    j = back.shape[1] - 1
    while state or j:
        how = back[state, j]
        if how == 0:
            j -= 1
            continue
        arc = (how - 1) >> 1
        arcs.append(np.int64(arc))
        state = sources[arc]
        j -= 1 - (how & 1)
    return np.array(arcs)[:0:-1]
