"""The frames of a shard pdf by pdf, as statistics take them, with no more of them in memory than a limit allows.

Utterances are read in *rounds*: each goes through all of them and collects the frames of some of the pdfs, in the order of time. A
pdf with more frames than a block is given room for one block, which is handed on whenever it is full. So blocks hold the same frames,
and those of a pdf follow each other in the same order, whatever the limit is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.hmm.model.gmm_update import FRAMES_PER_BLOCK

_NO_LIMIT = np.iinfo(np.int64).max


class Source(Protocol):
    """Utterances 0 .. num_utterances - 1 with frames of `width` columns."""

    num_utterances: int
    width: int

    def pdfs(self, index: int) -> np.ndarray:
        """The pdf of each frame of an utterance, int32 (T), -1 for those that are left out."""

    def features(self, index: int) -> np.ndarray:
        """Its frames, float32 (T, width)."""


def in_rounds(source: Source, counts: np.ndarray, most_rows: int, in_order: bool = False) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks (pdf, frames (T, width)), which are valid until the next is asked for.

    counts     frames of each pdf, int64 (num_pdfs)
    most_rows  frames in memory at once, FRAMES_PER_BLOCK or more
    in_order   pdfs come in ascending order, otherwise in any
    """
    places = counts if in_order else np.minimum(counts, FRAMES_PER_BLOCK)
    rounds = plan(places, most_rows)
    places_of = [_places_of_one(places, pdfs) if pdfs.stop == pdfs.start + 1 else places[pdfs] for pdfs in rounds]
    rows = np.empty((max((of_round.sum() for of_round in places_of), default=0), source.width), np.float32)
    for pdfs, of_round in zip(rounds, places_of):
        collected = PdfRound(pdfs.start, counts[pdfs], of_round, rows)
        yield from collected.collect(source, range(source.num_utterances))
        yield from collected.blocks()


def _places_of_one(places: np.ndarray, pdfs: slice) -> np.ndarray:
    """A pdf that has a round of its own needs no more than a block, whatever the order."""
    return np.minimum(places[pdfs], FRAMES_PER_BLOCK)


def plan(places: np.ndarray, most_rows: int) -> list[slice]:
    """The pdfs of each round, which take up to `most_rows` of `places`, or are one pdf."""
    rounds, ends, first = [], np.cumsum(places), 0
    while first < len(places):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + most_rows, side="right")), first + 1)
        rounds.append(slice(first, last))
        first = last
    return rounds


class PdfRound:
    """The pdfs from `first` on, which have `counts` frames, and `places` for them in `rows`."""

    def __init__(self, first: int, counts: np.ndarray, places: np.ndarray, rows: np.ndarray):
        self.first, self.rows = first, rows
        self.begins = np.cumsum(places) - places
        self.filled = np.zeros(len(places), np.int64)
        self._full = np.where(counts > places, places, _NO_LIMIT)

    def collect(self, source: Source, utterances: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Go through these utterances; blocks of places that become full."""
        for index in utterances:
            yield from self._take(source, index)

    def _take(self, source: Source, index: int) -> Iterator[tuple[int, np.ndarray]]:
        """Copy the frames of an utterance to their places."""
        places = source.pdfs(index) - self.first
        if not ((places >= 0) & (places < len(self.filled))).any():
            return
        features, t = source.features(index), 0
        while t < len(features):
            t, full = _copy(features, places, t, self.begins, self._full, self.filled, self.rows)
            if full >= 0:
                yield self.first + full, self._rows_of(full)
                self.filled[full] = 0

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of what is in memory."""
        for number in np.flatnonzero(self.filled).tolist():
            rows = self._rows_of(number)
            for begin in range(0, len(rows), FRAMES_PER_BLOCK):
                yield self.first + number, rows[begin : begin + FRAMES_PER_BLOCK]

    def _rows_of(self, number: int) -> np.ndarray:
        begin = self.begins[number]
        return self.rows[begin : begin + self.filled[number]]


@njit(nogil=True, cache=True)
def _copy(features, places, t, begins, full, filled, rows):
    """Copy frames from `t` on until a place is full; (the frame to go on with, the place that is full or -1)."""
    for t in range(t, len(features)):
        place = places[t]
        if 0 <= place < len(filled):
            row = rows[begins[place] + filled[place]]
            for d in range(features.shape[1]):
                row[d] = features[t, d]
            filled[place] += 1
            if filled[place] == full[place]:
                return t + 1, place
    return len(features), -1
