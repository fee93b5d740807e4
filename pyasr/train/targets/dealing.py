"""Which rank gets which utterances: the longest first, each to the rank that has the fewest frames so far, the first of several such.

Utterances of the same length are dealt at once: rank r, which has l_r frames, would get the next of length L at l_r, l_r + L, l_r + 2 L,
..., so that m of them go to the ranks of the m least of these numbers over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_BLOCK = 1 << 20
_LONG = 1 << 16  # frames of utterances that are sorted together, however long they are


def dealt_to(rank: int, num_ranks: int, lengths: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Whether each utterance, of `lengths` frames (n,), is one of those `among` (n,) that go to `rank` out of `num_ranks`, bool (n,).

    Beside arrays of n bytes, memory holds about a million utterances at a time.
    """
    mine, load = np.zeros(len(lengths), bool), np.zeros(num_ranks, np.int64)
    for members in _by_length(lengths, among):
        in_order = lengths[members]
        borders = [0, *(np.flatnonzero(in_order[1:] != in_order[:-1]) + 1).tolist(), len(members)]
        for begin, end in zip(borders, borders[1:]):
            owners = _deal(load, int(in_order[begin]), end - begin)
            mine[members[begin:end][owners == rank]] = True
    return mine


def _by_length(lengths: np.ndarray, among: np.ndarray) -> Iterator[np.ndarray]:
    """The utterances `among` all by falling length, those of the same length as they are, in pieces."""
    counts = np.zeros(_LONG + 1, np.int64)
    for begin in range(0, len(lengths), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        counts += np.bincount(np.minimum(lengths[block][among[block]], _LONG), minlength=_LONG + 1)
    longer = np.cumsum(counts[::-1])[::-1]  # utterances of so many frames or more
    pieces, at_most = longer // _BLOCK, np.iinfo(np.int64).max
    for at_least in [*(np.flatnonzero(pieces[:-1] > pieces[1:])[::-1] + 1).tolist(), 0]:
        members = np.flatnonzero(among & (lengths >= at_least) & (lengths < at_most))
        if len(members):
            yield members[np.argsort(-lengths[members], kind="stable")]
        at_most = at_least


def _deal(load: np.ndarray, length: int, number: int) -> np.ndarray:
    """The ranks that `number` utterances of `length` frames go to, one after the other, (number,); their `load` grows."""
    if number == 1 or not length:
        owners = np.full(number, load.argmin())
    else:
        room = load.max() + (number // len(load) + 1) * length  # below which there is a place for every utterance
        counts = np.minimum((room - load) // length + 1, number)
        ranks = np.arange(len(load)).repeat(counts)
        turns = np.arange(len(ranks)) - (np.cumsum(counts) - counts).repeat(counts)
        owners = ranks[np.lexsort((ranks, load[ranks] + turns * length))[:number]]
    load += np.bincount(owners, minlength=len(load)) * length
    return owners
