"""Assignment of utterances to ranks: the longest utterance first, each to the rank with the fewest frames so
far, in a tie to the first.

Utterances of the same length are dealt together. Rank r, which has l_r frames, would get its next utterances
of length L at loads of l_r, l_r + L, l_r + 2 L, ..., so m utterances go to the ranks of the m smallest of
these numbers over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_BLOCK = 1 << 20
_LONG = 1 << 16  # frames; longer utterances share one bin of the counting sort


def dealt_to(rank: int, num_ranks: int, lengths: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Whether each utterance goes to `rank` out of `num_ranks`, bool (n,).

    lengths  frames of each utterance (n,)
    among    which utterances are dealt, bool (n,)

    In addition to arrays of n bytes, memory contains about a million utterances at a time.
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
    """The utterances `among` all, in pieces, in order of decreasing length; utterances of the same length
    keep their order."""
    counts = np.zeros(_LONG + 1, np.int64)
    for begin in range(0, len(lengths), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        counts += np.bincount(np.minimum(lengths[block][among[block]], _LONG), minlength=_LONG + 1)
    longer = np.cumsum(counts[::-1])[::-1]  # number of utterances of at least this many frames
    pieces, at_most = longer // _BLOCK, np.iinfo(np.int64).max
    for at_least in [*(np.flatnonzero(pieces[:-1] > pieces[1:])[::-1] + 1).tolist(), 0]:
        members = np.flatnonzero(among & (lengths >= at_least) & (lengths < at_most))
        if len(members):
            yield members[np.argsort(-lengths[members], kind="stable")]
        at_most = at_least


def _deal(load: np.ndarray, length: int, number: int) -> np.ndarray:
    """The ranks that get `number` utterances of `length` frames, in order, (number,). Updates `load`."""
    if number == 1 or not length:
        owners = np.full(number, load.argmin())
    else:
        # at loads below this there is a place for every utterance
        room = load.max() + (number // len(load) + 1) * length
        counts = np.minimum((room - load) // length + 1, number)
        ranks = np.arange(len(load)).repeat(counts)
        turns = np.arange(len(ranks)) - (np.cumsum(counts) - counts).repeat(counts)
        owners = ranks[np.lexsort((ranks, load[ranks] + turns * length))[:number]]
    load += np.bincount(owners, minlength=len(load)) * length
    return owners
