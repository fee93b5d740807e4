"""Division of utterances into lists of nearly equal duration; utterances are indices into arrays here."""

from __future__ import annotations

from heapq import heapreplace
from itertools import pairwise

import numpy as np

from pyasr.io.keys import Groups

_UNBALANCED = 1.05


def divided(speakers: Groups, durations: np.ndarray, num: int) -> np.ndarray:
    """The list of each utterance, from 0, int64 (number of utterances,); each of the `num` lists gets at
    least one utterance.

    speakers   {speaker: utterances}
    durations  durations of the utterances, float64, at least `num` of them

    Speakers stay whole unless that would make a list more than 5 % longer than the mean. In this case the
    longest speakers are cut into as few pieces as needed.
    """
    total, of_members = sum(durations.data), durations[speakers.members]
    limit = total / num
    while True:
        borders = _cut(speakers.borders, of_members, limit)
        lists, longest = _to_lists(speakers, of_members, borders, num)
        are_single = len(borders) > len(durations)
        if np.bincount(lists, minlength=num).all() and (longest <= _UNBALANCED * total / num or are_single):
            return _of_utterances(speakers, lists, borders)
        limit /= 2


def divided_by_speakers(speakers: Groups, durations: np.ndarray, num: int) -> np.ndarray:
    """As `divided`, with whole speakers; some lists are empty if there are fewer speakers than lists."""
    lists, _ = _to_lists(speakers, durations[speakers.members], speakers.borders, num)
    return _of_utterances(speakers, lists, speakers.borders)


def distributed(
    lengths: np.ndarray, sizes: np.ndarray, firsts: np.ndarray, num: int
) -> tuple[np.ndarray, float]:
    """(the list of each piece, from 0, int64; duration of the longest list). The pieces are assigned from the
    longest to the shortest, each to the list that is shortest so far.

    lengths  durations of the pieces, float64
    sizes    their numbers of utterances: of lists with the same duration, the one with the fewest utterances
             is chosen
    firsts   their first utterances: of pieces with the same duration, the one with the smaller first
             utterance comes first
    """
    heap = [(0.0, 0, j) for j in range(num)]  # duration, utterances, number of each list, the shortest first
    lists, each = np.empty(len(lengths), np.int64), list(zip(lengths.tolist(), sizes.tolist()))
    for piece in np.lexsort((firsts, -lengths)).tolist():
        (load, num_utterances, shortest), (length, size) = heap[0], each[piece]
        lists[piece] = shortest
        heapreplace(heap, (load + length, num_utterances + size, shortest))
    return lists, max(heap)[0]


def _to_lists(
    speakers: Groups, durations: np.ndarray, borders: np.ndarray, num: int
) -> tuple[np.ndarray, float]:
    """`distributed` for pieces of speakers: piece i has the members `borders[i]:borders[i + 1]`; `durations`
    are those of the members."""
    each = durations.data
    lengths = np.fromiter((sum(each[begin:end]) for begin, end in pairwise(borders.data)), np.float64)
    return distributed(lengths, np.diff(borders), speakers.members[borders[:-1]], num)


def _of_utterances(speakers: Groups, lists: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """The list of each utterance, from the lists of the pieces; piece i has the members
    `borders[i]:borders[i + 1]`."""
    found = np.empty(len(speakers.members), np.int64)
    found[speakers.members] = np.repeat(lists, np.diff(borders))
    return found


def _cut(borders: np.ndarray, durations: np.ndarray, limit: float) -> np.ndarray:
    """The borders of speakers, with more borders in each speaker longer than `limit`, so that its pieces have
    about equal durations of at most `limit`."""
    long = np.flatnonzero(np.diff(borders) > 1).tolist()
    begins = (
        begin + cuts
        for i in long
        if len(cuts := _cuts(durations[(begin := borders[i]) : borders[i + 1]], limit))
    )
    return np.sort(np.concatenate([borders, *begins]))


def _cuts(durations: np.ndarray, limit: float) -> np.ndarray:
    """The begins of the second, third, ... piece of a speaker with these utterances."""
    ends = np.cumsum(durations)
    num = int(np.ceil(ends[-1] / limit - 1e-9)) if limit > 0 else len(durations)
    if num >= len(durations):
        return np.arange(1, len(durations))
    if num <= 1:
        return np.zeros(0, np.int64)
    piece = np.minimum((ends - ends[0] / 2) / max(ends[-1], 1e-9) * num, num - 1).astype(int)
    return 1 + np.flatnonzero(np.diff(piece))
